"""The command `azq top`."""

from __future__ import annotations

from typing import Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Overrides


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between frames.")] = 2.0,
    as_json: AsJson = False,
    config: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Watch all runs, queues and workers in the terminal, with or without the daemon; q quits."""
    from azq.config import load
    from azq.console.top import top as command

    command(load(config, overrides or []), once=once, as_json=as_json, every_s=every_s)
