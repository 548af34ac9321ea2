"""`azq tune`: how self-play is best spread over this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from azq.cli.options import Answer, MeasuredFile, Overrides, Preset, rehearsal, with_answer
from azq.errors import ConfigError, ExitCode
from azq.process.interrupts import end_as_ctrl_c


@with_answer
@rehearsal
def tune(
    game: Annotated[str, typer.Argument(help="Game to play, as `azq up --game` takes it: a name, FILE.py:CLASS, openspiel:NAME.")],
    preset: Preset = "",
    seconds: Annotated[float, typer.Option("--seconds", min=30.0, help="For all trials; more finds smaller differences.")] = 360.0,
    evaluator: Annotated[str, typer.Option("--evaluator", help="stream or local; as `azq up` takes it by default.")] = "",
    leaves: Annotated[bool, typer.Option("--leaves", help="Take other search.leaves_per_step too, which change what is searched.")] = False,
    longer: Annotated[float, typer.Option("--longer", min=1.0, help="Take nothing under which a game lasts so many times as long.")] = 2.0,
    shared: Annotated[bool, typer.Option("--shared", help="Others work on this machine: judge by CPU-seconds alone.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Settings file for `azq up --config`; tuned-GAME.toml by default.")] = None,
    into: Annotated[Path | None, typer.Option("--update", help="Settings file to change instead; azq.toml, for example.")] = None,
    overrides: Overrides = None,
    config: MeasuredFile = None,
) -> Answer:
    """Measure how self-play is best spread over this machine, and write it down where it is faster than what is set by more than noise."""
    import logging

    from azq import logs
    from azq.calibrate.tune import TuneRequest
    from azq.calibrate.tune import tune as command
    from azq.host.rundir import name_of

    if out and into:
        raise ConfigError("--out and --update are two ways to write one choice; give one of them")
    file = into or out or Path(f"tuned-{name_of(game)}.toml")
    end_as_ctrl_c()
    logs.setup("tune", level=logging.WARNING)
    asked = TuneRequest(game, preset, overrides or (), config, seconds, evaluator, leaves, longer, shared, None if into else file, into)
    found = command(asked, lambda line: typer.echo(line, err=True))
    written = [f"written: azq up --game {game} --config {file}"] if found.changes else []
    values = found.values() | {"file": str(file) if found.changes else ""}
    return Answer(values, [*found.as_text(), *written], ExitCode.OK if found.tuned else ExitCode.INTERRUPTED)
