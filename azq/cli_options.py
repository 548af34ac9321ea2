"""Options that many commands share, and how they answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; azq.toml of this folder by default.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
PLAYER_HELP = "latest, weights:<version>, random, uct:<n>, pimc:<n>, rule, solver, gnubg:<plies>, pubeval, gtp:<command>"
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]


def emit(value: Any, as_json: bool, text: str) -> None:
    """Prints a value for machines, or its text for people."""
    typer.echo(json.dumps(value) if as_json else text)
