"""Options that many commands share, how they answer, and standard output that may fail."""

from __future__ import annotations

import inspect
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO, get_type_hints

import typer

from azq.errors import AzqError, ExitCode

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

ConfigFile = Annotated[Path | None, typer.Option("--config", help="Settings file; azq.toml of this folder by default.")]
MeasuredFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file whose sections of runs, worker and inference count; none by default.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one setting; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Url = Annotated[str, typer.Option("--url", help="The daemon's address; that of daemon.host and daemon.port by default.")]
PRESETS = "Settings for more than two cores (gpu, sprint, structured, box-2gpu ...) or your own board game (board); several by commas."
Preset = Annotated[str, typer.Option("--preset", help=PRESETS)]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]

Command = Callable[..., Any]


class Answer(NamedTuple):
    """What a command answers: values for machines, lines for people; and how it ends."""

    values: Any
    text: str | Sequence[str]
    code: ExitCode = ExitCode.OK


def with_settings(command: Command) -> Command:
    """A command that is given the settings, with `--config` and `--set` in place of its first parameter."""

    def run(config: Path | None, overrides: list[str] | None, **values: Any) -> Any:
        from azq.config import load
        from azq.host.game_files import with_game
        from azq.host.rundir import naming_folder

        settings = load(config, overrides or [])
        named = (settings.run.game, values.get("game"), values.get("name"))
        settings = with_game(settings, *(name for name in named if isinstance(name, str)))
        with naming_folder(settings.home):
            return command(settings, **values)

    return offering(run, command, given=1, config=(ConfigFile, None), overrides=(Overrides, None))


def rehearsal(command: Command) -> Command:
    """A command that neither reads settings of what is live here nor touches it."""

    @wraps(command)
    def run(*args: Any, **values: Any) -> Any:
        from azq.process.apart import alone

        with alone():
            return command(*args, **values)

    return run


def with_client(command: Command) -> Command:
    """A command that is given a client of the daemon, and `host_settings` where it has them, with `--url` and `--config` in their place."""
    given = 1 + ("host_settings" in inspect.signature(command).parameters)

    def run(url: str, config: Path | None, **values: Any) -> Any:
        from azq.config import load
        from azq.console.remote import client_of

        settings = load(config)
        with client_of(settings, url) as client:
            return command(*(client, settings)[:given], **values)

    return offering(run, command, given=given, url=(Url, ""), config=(ConfigFile, None))


def with_answer(command: Command) -> Command:
    """A command that is given nothing but its own parameters, and answers."""
    return offering(command, command)


def offering(run: Command, command: Command, given: int = 0, **options: tuple[Any, Any]) -> Command:
    """`run` with the name and words of `command`, its parameters but for the first, which are `given` to it, and the options.

    One that returns an `Answer` prints it, and has `--json`; that stands last.
    """
    parameters = list(inspect.signature(command).parameters.values())
    unknown = {parameter.annotation: Any for parameter in parameters[:given]}  # imported for type checkers alone
    hints, own_hints = (get_type_hints(function, localns=unknown, include_extras=True) for function in (run, command))
    offered = {parameter.name: (own_hints[parameter.name], parameter.default) for parameter in parameters[given:]} | options
    answers = Answer in (hints["return"], own_hints["return"])
    if answers or "as_json" in offered:
        offered["as_json"] = offered.pop("as_json", (AsJson, False))

    def offer(**values: Any) -> None:
        as_json = answers and values.pop("as_json")
        with answers_apart() if answers else nullcontext():
            answer = run(**values)
        if answers:
            emit(answer.values, as_json, answer.text if isinstance(answer.text, str) else "\n".join(answer.text))
            raise typer.Exit(int(answer.code))

    offer.__name__, offer.__doc__ = command.__name__, command.__doc__
    offer.__annotations__ = {name: kind for name, (kind, _) in offered.items()}
    shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=to, annotation=kind) for name, (kind, to) in offered.items()]
    offer.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # what typer reads
    return offer


def emit(values: Any, as_json: bool, text: str) -> None:
    """Prints values for machines, models and dataclasses among them, or their text for people."""
    typer.echo(json.dumps(values, default=_plain) if as_json else text)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else asdict(value)


def names(text: str) -> list[str]:
    """The parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


class _Output(io.FileIO):
    """The descriptor of standard output."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise AzqError(f"cannot write to standard output: {error.strerror}") from None


@contextmanager
def answers_apart() -> Iterator[TextIO]:
    """Standard output for answers alone: what else prints meanwhile, as the code of somebody's game, goes to standard error."""
    answers = sys.stdout
    with redirect_stdout(sys.stderr):
        yield answers


@contextmanager
def checked_output() -> Iterator[None]:
    """Has everything on its way by the end. Raises `AzqError` where it cannot be written, and ends quietly where its reader is gone."""
    output = sys.stdout
    if output is None or output.isatty():
        yield
        return
    raw = io.BufferedWriter(_Output(output.fileno(), "w", closefd=False))
    sys.stdout = io.TextIOWrapper(raw, output.encoding, output.errors, line_buffering=bool(output.line_buffering))
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except (AzqError, BrokenPipeError) as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # what is left goes nowhere
            if isinstance(error, AzqError):
                raise
            sys.exit(int(ExitCode.CRASH))
