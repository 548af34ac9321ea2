"""Options that many commands share, and how they answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from azq.client import Client

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; azq.toml of this folder by default.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Url = Annotated[str, typer.Option("--url", help="The daemon's address; that of daemon.host and daemon.port by default.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]


def emit(value: Any, as_json: bool, text: str) -> None:
    """Prints a value for machines, or its text for people."""
    typer.echo(json.dumps(value) if as_json else text)


def emit_all(values: list[dict[str, Any]], as_json: bool, lines: list[str]) -> None:
    """Prints values for machines, or a line for each for people."""
    emit(values, as_json, "\n".join(lines) or "none")


def rest_client(url: str, config: Path | None) -> Client:
    """A client of the daemon at `url`, or of the one that the settings name."""
    from azq.config import load
    from azq.console.remote import client_of

    return client_of(load(config), url)
