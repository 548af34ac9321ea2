"""`azq validate`: proof that the same seed learns the same weights."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, rehearsal, with_answer
from azq.errors import ConfigError, ExitCode
from azq.process.interrupts import end_as_ctrl_c

if TYPE_CHECKING:
    from azq.validate.validate import Hardship


@with_answer
@rehearsal
def validate(
    game: str = "tic_tac_toe",
    iterations: Annotated[
        int, typer.Option("--iterations", min=0, help="Versions after the first; 6, and 500 with --soak, by default.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the run; with --bands of the first, which the band does not have.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that play; with --bands, seeds at once.")] = 2,
    evaluator: Annotated[str, typer.Option("--evaluator", help="stream or local")] = "stream",
    kill: Annotated[bool, typer.Option("--kill", help="Kill a process with each version.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop everything halfway, and start it again.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Times through the queue.")] = 1,
    soak: Annotated[bool, typer.Option("--soak", help="Hundreds of versions: what grows, leaks or drifts.")] = False,
    bands: Annotated[str, typer.Option("--bands", metavar="GAME", help="Is what other seeds learn within the game's band?")] = "",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="With --bands: how many.")] = 5,
    cpu: Annotated[bool, typer.Option("--cpu", help="With --bands: fail also for half as many CPU-seconds again.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the report of --soak, or for curves and chart of --bands.")] = None,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="An earlier answer of --json, or a file of --bands --out.")] = None,
) -> Answer:
    """Learn in lockstep in one process and through the queue: the same weights, bit for bit, or the first version that differs."""
    from azq import logs
    from azq.validate.validate import Hardship, Validation
    from azq.validate.validate import validate as command

    if evaluator not in ("stream", "local"):
        raise ConfigError(f"--evaluator {evaluator!r} is not stream or local")
    end_as_ctrl_c()
    logs.setup("validate", level=logging.WARNING)
    if bands:
        from azq.validate.banded import Banding, check_bands

        judged = check_bands(Banding(bands, seeds, seed, workers, cpu, baseline, out), lambda line: typer.echo(line, err=True))
        return Answer(judged.values(), judged.as_text(), ExitCode.OK if judged.passed else ExitCode.CRASH)
    if soak:
        return _soaked(game, iterations or 500, seed, Hardship(workers, kill, stop), out)
    asked = Validation(game, iterations or 6, seed, evaluator, Hardship(workers, kill, stop), repeat, baseline)
    report = command(asked, lambda line: typer.echo(line, err=True))
    return Answer(report.values(), report.as_text(), ExitCode.OK if report.passed else ExitCode.CRASH)


def _soaked(game: str, iterations: int, seed: int, hardship: Hardship, out: Path | None) -> Answer:
    from azq.validate.soak import as_markdown, soak, write_report
    from azq.validate.versions import lockstep_sections

    if hardship.kill or hardship.stop:
        raise ConfigError("--soak takes neither --kill nor --stop: memory is followed process by process")
    report = soak(lockstep_sections(game, seed, "stream"), hardship, iterations)
    if out is not None:
        write_report(report, out)
    values = {"game": game, "versions": report.versions, "lines": [{**asdict(line), "passed": line.passed} for line in report.lines]}
    return Answer({**values, "passed": report.passed}, as_markdown(report), ExitCode.OK if report.passed else ExitCode.CRASH)
