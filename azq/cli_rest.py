"""Commands over the daemon's REST interface: `azq runs`, `azq jobs`, `azq workers`, `azq events`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from azq.cli_options import PLAYER_HELP, AsJson, ConfigFile, emit

if TYPE_CHECKING:
    from azq.client import Client
    from daemon.api.schemas import JobOut, RunOut

runs_app = typer.Typer(no_args_is_help=True, help="Runs, over the daemon's REST interface.")
jobs_app = typer.Typer(no_args_is_help=True, help="Jobs, over the daemon's REST interface.")

Url = Annotated[str, typer.Option("--url", help="The daemon's address; that of daemon.host and daemon.port by default.")]
Run = Annotated[str, typer.Argument(help="Name of the run.")]
Job = Annotated[str, typer.Argument(help="Id of the job, as connect_four:17.")]
Until = Annotated[str | None, typer.Option("--until", metavar="minutes=M|games=N|steps=N", help="The first goal reached ends the run.")]
ReasonText = Annotated[str, typer.Option("--reason", help="Shown to whoever looks at the run.")]


def register(app: typer.Typer) -> None:
    """Adds these commands to the command line."""
    app.add_typer(runs_app, name="runs")
    app.add_typer(jobs_app, name="jobs")
    app.command("workers")(workers)
    app.command("events")(events)


def _client(url: str, config: Path | None) -> Client:
    from azq.config import load
    from azq.console.remote import client_of

    return client_of(load(config), url)


def _goals(until: str | None) -> dict[str, float] | None:
    from azq.console.up import parse_until

    return None if until is None else parse_until(until)


def _emit_run(run: RunOut, as_json: bool) -> None:
    goals = ", ".join(f"{goal}={limit:g}" for goal, limit in run.until.items()) or "no end"
    why = f" ({run.reason})" if run.reason else ""
    network = f", network {run.network}" if run.network else ""
    text = f"{run.name:<24}{run.game:<16}{run.state}{why}, {run.active_s / 60:.1f} min, {goals}{network}"
    emit(run.model_dump(mode="json"), as_json, text)


def _emit_job(job: JobOut, as_json: bool) -> None:
    detail = f"attempt {job.attempt}" + (f", {job.owner}" if job.owner else "") + (f", {job.error}" if job.error else "")
    emit(job.model_dump(mode="json"), as_json, f"{job.job_id:<28}{job.kind}.{job.tag:<12}{job.state:<10}{detail}")


def _emit_all(values: list[dict[str, Any]], as_json: bool, lines: list[str]) -> None:
    emit(values, as_json, "\n".join(lines) or "none")


@runs_app.command("list")
def runs_list(
    state: Annotated[str | None, typer.Option("--state", help="running, paused, finished, failed")] = None,
    game: Annotated[str | None, typer.Option("--game")] = None,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List runs."""
    with _client(url, config) as client:
        found = list(client.runs(state=state, game=game))
    lines = [f"{run.name:<24}{run.game:<16}{run.state:<10}{run.active_s / 60:8.1f} min" for run in found]
    _emit_all([run.model_dump(mode="json") for run in found], as_json, lines)


@runs_app.command("show")
def runs_show(run: Run, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show one run."""
    with _client(url, config) as client:
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

    with _client(url, config) as client:
        sections = parse_overrides(settings or [])
        _emit_run(client.create_run(run, game=game, preset=preset, sections=sections, until=_goals(until)), as_json)


@runs_app.command("pause")
def runs_pause(run: Run, reason: ReasonText = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Pause a run: its open games go back to the pool."""
    with _client(url, config) as client:
        _emit_run(client.pause_run(run, reason), as_json)


@runs_app.command("resume")
def runs_resume(run: Run, until: Until = None, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Go on with a run, towards other goals where they are given."""
    with _client(url, config) as client:
        _emit_run(client.resume_run(run, until=_goals(until)), as_json)


@runs_app.command("until")
def runs_until(run: Run, until: Until = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Give a run other goals, counted from its creation; without --until it has no end."""
    with _client(url, config) as client:
        _emit_run(client.change_run(run, until=_goals(until) or {}), as_json)


@runs_app.command("finish")
def runs_finish(run: Run, reason: ReasonText = "", url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """End a run; it can be resumed."""
    with _client(url, config) as client:
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

    with _client(url, config) as client:
        size = save(client.read_weights(run, version), to)
    typer.echo(f"{to}: {size} bytes")


@jobs_app.command("list")
def jobs_list(
    run: Annotated[str | None, typer.Option("--run")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="selfplay or eval")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    state: Annotated[str | None, typer.Option("--state", help="queued, leased, done, failed, cancelled")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The newest ended jobs too.")] = False,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List jobs."""
    with _client(url, config) as client:
        found = list(client.jobs(run=run, kind=kind, tag=tag, state=state, active=not ended))
    lines = [f"{job.job_id:<28}{job.kind}.{job.tag:<12}{job.state:<10}attempt {job.attempt}  {job.owner}" for job in found]
    _emit_all([job.model_dump(mode="json") for job in found], as_json, lines)


@jobs_app.command("show")
def jobs_show(job: Job, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show one job."""
    with _client(url, config) as client:
        _emit_job(client.job(job), as_json)


@jobs_app.command("enqueue")
def jobs_enqueue(
    run: Run,
    kind: Annotated[str, typer.Option("--kind", help="selfplay or eval")] = "selfplay",
    tag: Annotated[str | None, typer.Option("--tag", help="Hardware tag; the run's own by default.")] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the most urgent.")] = 6,
    games: Annotated[int | None, typer.Option("--games", help="Games in flight, or games of the match.")] = None,
    first: Annotated[str | None, typer.Option("--first", help=f"An eval job's player: {PLAYER_HELP}")] = None,
    second: Annotated[str | None, typer.Option("--second", help="The opponent.")] = None,
    num_simulations: Annotated[int, typer.Option(help="Simulations a move, of a match.")] = 64,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue a self-play job, or with --kind eval a match."""
    match: dict[str, Any] | None = None
    if kind == "eval":
        match = {"first": first or "latest", "second": second or "uct:100", "games": games or 40, "num_simulations": num_simulations}
        games = None
    with _client(url, config) as client:
        _emit_job(client.enqueue(run, kind, tag=tag, priority=priority, games=games, match=match), as_json)


@jobs_app.command("revoke")
def jobs_revoke(job: Job, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Take a job back; its games go back to the pool."""
    with _client(url, config) as client:
        _emit_job(client.revoke_job(job), as_json)


def workers(
    role: Annotated[str | None, typer.Option("--role", help="selfplay, eval, inference, learner, daemon")] = None,
    host: Annotated[str | None, typer.Option("--host")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    run: Annotated[str | None, typer.Option("--run")] = None,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """List live processes, over the daemon's REST interface."""
    from dataclasses import asdict

    with _client(url, config) as client:
        found = list(client.workers(role=role, host=host, tag=tag, run=run))
    lines = [f"{beat.role:<12}{beat.worker:<40}{beat.host:<20}{beat.age_s:6.1f} s  {' '.join(beat.queues)}" for beat in found]
    _emit_all([asdict(beat) for beat in found], as_json, lines)


def events(
    run: Annotated[str | None, typer.Option("--run", help="One run only.")] = None,
    after: Annotated[str, typer.Option("--after", help="Go on after the event of this id.")] = "",
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print what becomes of runs as it happens, until Ctrl-C; broken connections are taken up again."""
    with _client(url, config) as client:
        for event in client.events(run, after=after):
            about = " ".join(f"{name}={value}" for name, value in event.about.items())
            emit(event.model_dump(mode="json"), as_json, f"{event.run:<24}{event.kind:<20}{about}")
