"""`azq validate`: proof that the same seed learns the same weights."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import Annotated

import typer

from azq.cli.options import Answer, with_answer
from azq.errors import ConfigError, ExitCode


@with_answer
def validate(
    game: str = "tic_tac_toe",
    iterations: Annotated[int, typer.Option("--iterations", min=1, help="Versions of the weights after the first.")] = 6,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the run.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that play.")] = 2,
    evaluator: Annotated[str, typer.Option("--evaluator", help="stream or local")] = "stream",
    kill: Annotated[bool, typer.Option("--kill", help="Kill a process with each version.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop everything halfway, and start it again.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Times through the queue.")] = 1,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="An earlier answer of --json, from this kind of machine.")] = None,
) -> Answer:
    """Learn in lockstep in one process and through the queue: the same weights, bit for bit, or the first version that differs."""
    from azq import logs
    from azq.validate.queued import Hardship
    from azq.validate.validate import Validation
    from azq.validate.validate import validate as command

    if evaluator not in ("stream", "local"):
        raise ConfigError(f"--evaluator {evaluator!r} is not stream or local")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends it as Ctrl-C does, and with it the system that it started
    logs.setup("validate", level=logging.WARNING)
    asked = Validation(game, iterations, seed, evaluator, Hardship(workers, kill, stop), repeat, baseline)
    report = command(asked, lambda line: typer.echo(line, err=True))
    return Answer(report.values(), report.as_text(), ExitCode.OK if report.passed else ExitCode.CRASH)
