"""`azq runs`: everything about runs, over the daemon's REST interface; `restore` works on the control plane itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import AsJson, ConfigFile, Url, emit, emit_all, rest_client

if TYPE_CHECKING:
    from azq.status.schemas import RunOut

runs_app = typer.Typer(no_args_is_help=True, help="Runs, over the daemon's REST interface.")

Run = Annotated[str, typer.Argument(help="Name of the run.")]
Until = Annotated[str | None, typer.Option("--until", metavar="minutes=M|games=N|steps=N", help="The first goal reached ends the run.")]
ReasonText = Annotated[str, typer.Option("--reason", help="Shown to whoever looks at the run.")]


def _goals(until: str | None) -> dict[str, float] | None:
    from azq.goals import Goals

    return None if until is None else dict(Goals.parse(until).until)


def _emit_run(run: RunOut, as_json: bool) -> None:
    goals = ", ".join(f"{goal}={limit:g}" for goal, limit in run.until.items()) or "no end"
    why = f" ({run.reason})" if run.reason else ""
    network = f", network {run.network}" if run.network else ""
    text = f"{run.name:<24}{run.game:<16}{run.state}{why}, {run.active_s / 60:.1f} min, {goals}{network}"
    emit(run.model_dump(mode="json"), as_json, text)


@runs_app.command("list")
def runs_list(
    state: Annotated[str | None, typer.Option("--state", help="running, paused, finished, failed")] = None,
    game: Annotated[str | None, typer.Option("--game")] = None,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List runs."""
    with rest_client(url, config) as client:
        found = list(client.runs(state=state, game=game))
    lines = [f"{run.name:<24}{run.game:<16}{run.state:<10}{run.active_s / 60:8.1f} min" for run in found]
    emit_all([run.model_dump(mode="json") for run in found], as_json, lines)


@runs_app.command("show")
def runs_show(run: Run, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show one run."""
    with rest_client(url, config) as client:
        _emit_run(client.run(run), as_json)


@runs_app.command("create")
def runs_create(
    run: Run,
    game: Annotated[str | None, typer.Option("--game", help="Its preset is below the settings.")] = None,
    preset: Annotated[str, typer.Option("--preset", help="A variant of the preset, such as gpu.")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting of the run.")] = None,
    until: Until = None,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a run, which starts at once."""
    from azq.config import parse_overrides

    with rest_client(url, config) as client:
        sections = parse_overrides(settings or [])
        _emit_run(client.create_run(run, game=game, preset=preset, sections=sections, until=_goals(until)), as_json)


@runs_app.command("pause")
def runs_pause(run: Run, reason: ReasonText = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Pause a run: its open games go back to the pool."""
    with rest_client(url, config) as client:
        _emit_run(client.pause_run(run, reason), as_json)


@runs_app.command("resume")
def runs_resume(run: Run, until: Until = None, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Go on with a run, towards other goals where they are given."""
    with rest_client(url, config) as client:
        _emit_run(client.resume_run(run, until=_goals(until)), as_json)


@runs_app.command("until")
def runs_until(run: Run, until: Until = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Give a run other goals, counted from its creation; without --until it has no end."""
    with rest_client(url, config) as client:
        _emit_run(client.change_run(run, until=_goals(until) or {}), as_json)


@runs_app.command("finish")
def runs_finish(run: Run, reason: ReasonText = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """End a run; it can be resumed."""
    with rest_client(url, config) as client:
        _emit_run(client.finish_run(run, reason), as_json)


@runs_app.command("weights")
def runs_weights(
    run: Run,
    to: Annotated[Path, typer.Option("--to", help="The file to write.")],
    version: Annotated[str, typer.Option("--version", help="A number, or latest.")] = "latest",
    url: Url = "",
    config: ConfigFile = None,
) -> None:
    """Download weights, verified."""
    from azq.console.remote import save

    with rest_client(url, config) as client:
        size = save(client.read_weights(run, version), to)
    typer.echo(f"{to}: {size} bytes")


@runs_app.command("delete")
def runs_delete(
    run: Run,
    files: Annotated[
        bool, typer.Option("--files", help="Its folder too, with games, checkpoints and weights; on the host that has it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Forget a run that is paused, finished or failed: its ledger, jobs, results and history. Its folder stays unless --files."""
    from azq.console.deleting import delete_run

    with rest_client(url, config) as client:
        confirm = (lambda _: True) if yes else (lambda question: typer.confirm(question, err=True))
        deleted = delete_run(client, run, files, confirm)
    emit(
        deleted,
        as_json,
        f"{run}: {'deleted' if deleted['deleted'] else 'kept'}" + (f", with {deleted['folder']}" if deleted["files"] else ""),
    )


@runs_app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="The run's folder, with run.toml and segments, on this host.")],
    run: Annotated[str, typer.Option("--run", help="Name of the run; that of the folder by default.")] = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a run go on from its folder after its control plane was lost, or write off what its folder lost."""
    from azq.config import load
    from azq.host.restore import restore_run

    done = restore_run(load(config), folder, run)
    emit(done, as_json, f"run {done['run']} goes on from {done['games']} games; {done['written_off']} written off")
