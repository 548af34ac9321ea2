"""The command line: the composition root. Commands import what they need when they run, so that `azq --help` is quick."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from azq import __version__, logs, parts
from azq.cli import fleet, play, processes, rest, views
from azq.cli.options import Command, checked_output
from azq.errors import AzqError, ExitCode

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains AlphaZero agents over a message queue. Begin with `azq up --game connect_four`; then `azq status`, `azq top`, `azq play`.",
    epilog="`azq help --all` lists every command.",
)


def main() -> None:
    """Runs the command line; every foreseen error is one line and an exit code of docs/5-operations.md."""
    logs.setup("azq", to_person=sys.stderr.isatty())  # to standard error: what a command answers stays alone on standard output
    try:
        with checked_output():
            app()
    except AzqError as error:
        print(f"azq: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(int(error.exit_code))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        place = error.filename or "a file, see `df`"
        print(f"azq: cannot write {place}: {error.strerror}; free space there, then start again", file=sys.stderr)  # noqa: T201
        sys.exit(int(ExitCode.CRASH))
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"azq {__version__}")
        raise typer.Exit


def _name_of(command: Command | typer.Typer) -> str:
    return str(command.info.name) if isinstance(command, typer.Typer) else command.__name__.replace("_", "-")


COMMANDS: dict[str, Command | typer.Typer] = {
    _name_of(command): command
    for command in (
        *(play.play, play.match, play.move, play.gtp, play.grade, play.exploitability, play.solve, play.replay, play.demo),
        *(processes.up, processes.worker, processes.inference, processes.learner, processes.daemon, processes.front, processes.broker),
        *(views.status, views.top, views.why, views.report, views.ledger, views.profile, views.compare),
        *(views.doctor, rest.workers, rest.events, fleet.join, fleet.join_token),
        *(play.games_app, play.site_app, views.devices_app, views.samples_app, views.config_app),
        *(rest.runs_app, rest.weights_app, rest.jobs_app, fleet.fleet_app, fleet.machine_app, fleet.systemd_app),
    )
}
for part in parts.extensions("commands"):
    COMMANDS |= part.COMMANDS
#: what `azq help` lists, by panel: those of every day, then those that `--all` adds; a part's are left out where it is missing
PANELS = {
    "Start": ("demo up doctor estimate games", "tune sweep validate bench drill speedrun sim devices"),
    "Watch": ("status top why report", "ledger workers events profile compare samples cost"),
    "Play": ("play match weights", "move gtp grade exploitability solve replay site"),
    "Fleet": ("runs join cluster config", "join-token worker inference learner daemon gateway front broker "
              "jobs fleet machine volunteers systemd"),
}  # fmt: skip
for panel, tiers in PANELS.items():
    for hidden, names in enumerate(tiers):
        for name in filter(COMMANDS.__contains__, names.split()):
            command = COMMANDS[name]
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=panel, hidden=bool(hidden))
            else:
                app.command(name, rich_help_panel=panel, hidden=bool(hidden))(command)


@app.command("help", rich_help_panel="Start", hidden=True)
def show_help(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]...", help="A command, or a group and its command.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every command.")] = False,
) -> None:
    """Show the commands of every day, all of them, or the options of one."""
    if words:
        app([*words, "--help"])
    root = context.find_root()
    for command in vars(root.command)["commands"].values():
        command.hidden = command.hidden and not everything
    typer.echo(root.get_help())
