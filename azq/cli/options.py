"""Options that many commands share, and how they answer."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; azq.toml of this folder by default.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Url = Annotated[str, typer.Option("--url", help="The daemon's address; that of daemon.host and daemon.port by default.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]

Command = Callable[..., None]


def with_settings(command: Command) -> Command:
    """A command that is given the settings, with `--config` and `--set` in place of its first parameter."""

    def run(config: Path | None, overrides: list[str] | None, **values: Any) -> None:
        from azq.config import load

        command(load(config, overrides or []), **values)

    return _offering(run, command, config=(ConfigFile, None), overrides=(Overrides, None))


def with_client(command: Command) -> Command:
    """A command that is given a client of the daemon, with `--url` and `--config` in place of its first parameter."""

    def run(url: str, config: Path | None, **values: Any) -> None:
        from azq.config import load
        from azq.console.remote import client_of

        with client_of(load(config), url) as client:
            command(client, **values)

    return _offering(run, command, url=(Url, ""), config=(ConfigFile, None))


def _offering(run: Command, command: Command, **options: tuple[Any, Any]) -> Command:
    """`run` with the name and words of `command` and its parameters but the first; the options stand before `--json`, which is last."""
    first, *own = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, localns={first.annotation: Any}, include_extras=True)  # its type is imported for type checkers alone
    offered = [(each.name, hints[each.name], each.default) for each in own]
    last = [entry for entry in offered if entry[0] == "as_json"]
    rows = [*(entry for entry in offered if entry not in last), *((name, *option) for name, option in options.items()), *last]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=to, annotation=kind) for name, kind, to in rows]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: kind for name, kind, _ in rows}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    return run


def emit(value: Any, as_json: bool, text: str) -> None:
    """Prints a value for machines, or its text for people."""
    typer.echo(json.dumps(value) if as_json else text)


def emit_all(values: list[dict[str, Any]], as_json: bool, lines: list[str]) -> None:
    """Prints values for machines, or a line for each for people."""
    emit(values, as_json, "\n".join(lines) or "none")


def names(text: str) -> list[str]:
    """The parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]
