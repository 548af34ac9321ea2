"""`azq estimate`: how long, whether it fits, what it costs."""

from __future__ import annotations

from typing import Annotated

import typer

from azq.cli.options import Answer, MeasuredFile, Overrides, Preset, rehearsal, with_answer
from azq.process.interrupts import end_as_ctrl_c


@with_answer
@rehearsal
def estimate(
    game: Annotated[str, typer.Argument(help="Game to learn, as `azq up --game` takes it: a name, FILE.py:CLASS, openspiel:NAME.")],
    preset: Preset = "",
    seconds: Annotated[float, typer.Option("--seconds", min=5.0, help="How long to play and train; more for games of many plies.")] = 30.0,
    watts: Annotated[float, typer.Option("--watts", min=0.0, help="What this machine takes at work.")] = 60.0,
    overrides: Overrides = None,
    config: MeasuredFile = None,
) -> Answer:
    """Say how fast this machine would learn a game, whether it fits and what it costs, from half a minute of play and training."""
    import logging

    from azq import logs
    from azq.calibrate.estimate import EstimateRequest
    from azq.calibrate.estimate import estimate as command

    end_as_ctrl_c()
    logs.setup("estimate", level=logging.WARNING)
    asked = EstimateRequest(game, preset, overrides or (), config, seconds, watts)
    found = command(asked, lambda line: typer.echo(line, err=True))
    return Answer(found.values(), found.as_text())
