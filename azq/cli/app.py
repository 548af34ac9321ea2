"""The command line: the composition root. Commands import what they need when they run, so that `azq --help` is quick."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from azq import __version__, logs
from azq.cli import fleet, look, play, processes, rest
from azq.cli.bench import bench_app
from azq.cli.cluster import cluster_app, cost
from azq.cli.drill import drill_app
from azq.cli.estimate import estimate
from azq.cli.machine import machine_app
from azq.cli.options import Command
from azq.cli.output import checked_output
from azq.cli.samples import balance, samples_app
from azq.cli.solve import solve
from azq.cli.sweep import sweep
from azq.cli.tune import tune
from azq.cli.validate import validate
from azq.cli.volunteers import volunteers_app
from azq.errors import AzqError, ExitCode

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Trains AlphaZero agents over a message queue. Begin with `azq up --game connect_four`; then `azq status`, `azq top`, `azq play`.",
)


def main() -> None:
    """Runs the command line; every foreseen error is one line and an exit code of docs/5-operations.md."""
    logs.setup("azq")  # to standard error: what a command answers stays alone on standard output
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


# In the order in which `azq --help` lists them.
COMMANDS: dict[str, Command] = {
    "up": processes.up,
    "status": look.status,
    "ledger": look.ledger,
    "play": play.play,
    "move": play.move,
    "gtp": play.gtp,
    "match": play.match,
    "grade": play.grade,
    "exploitability": play.exploitability,
    "solve": solve,
    "replay": play.replay,
    "worker": processes.worker,
    "inference": processes.inference,
    "learner": processes.learner,
    "daemon": processes.daemon,
    "gateway": processes.gateway,
    "front": processes.front,
    "broker": processes.broker,
    "top": look.top,
    "ranks": look.ranks,
    "doctor": look.doctor,
    "profile": look.profile,
    "compare": look.compare,
    "report": look.report,
    "why": look.why,
    "balance": balance,
    "validate": validate,
    "sweep": sweep,
    "estimate": estimate,
    "tune": tune,
    "cost": cost,
    "join": fleet.join,
    "join-token": fleet.join_token,
    "workers": rest.workers,
    "events": rest.events,
}
GROUPS = {
    "runs": rest.runs_app,
    "jobs": rest.jobs_app,
    "weights": rest.weights_app,
    "samples": samples_app,
    "fleet": fleet.fleet_app,
    "cluster": cluster_app,
    "machine": machine_app,
    "volunteers": volunteers_app,
    "config": look.config_app,
    "devices": look.devices_app,
    "games": play.games_app,
    "bench": bench_app,
    "drill": drill_app,
    "systemd": fleet.systemd_app,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
