"""Commands over the daemon's REST interface: `azq jobs`, `azq workers`, `azq events`; `azq runs` is in `azq.cli.runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from azq.arena.players import FORMS as PLAYER_FORMS
from azq.cli.options import AsJson, ConfigFile, Url, emit, emit_all, rest_client
from azq.cli.runs import runs_app

if TYPE_CHECKING:
    from azq.status.schemas import JobOut

jobs_app = typer.Typer(no_args_is_help=True, help="Jobs, over the daemon's REST interface.")

Run = Annotated[str, typer.Argument(help="Name of the run.")]
Job = Annotated[str, typer.Argument(help="Id of the job, as connect_four:17.")]


def register(app: typer.Typer) -> None:
    """Adds these commands to the command line."""
    app.add_typer(runs_app, name="runs")
    app.add_typer(jobs_app, name="jobs")
    app.command("workers")(workers)
    app.command("events")(events)


def _emit_job(job: JobOut, as_json: bool) -> None:
    detail = f"attempt {job.attempt}" + (f", {job.owner}" if job.owner else "") + (f", {job.error}" if job.error else "")
    emit(job.model_dump(mode="json"), as_json, f"{job.job_id:<28}{job.kind}.{job.tag:<12}{job.state:<10}{detail}")


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
    with rest_client(url, config) as client:
        found = list(client.jobs(run=run, kind=kind, tag=tag, state=state, active=not ended))
    lines = [f"{job.job_id:<28}{job.kind}.{job.tag:<12}{job.state:<10}attempt {job.attempt}  {job.owner}" for job in found]
    emit_all([job.model_dump(mode="json") for job in found], as_json, lines)


@jobs_app.command("show")
def jobs_show(job: Job, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show one job."""
    with rest_client(url, config) as client:
        _emit_job(client.job(job), as_json)


@jobs_app.command("enqueue")
def jobs_enqueue(
    run: Run,
    kind: Annotated[str, typer.Option("--kind", help="selfplay or eval")] = "selfplay",
    tag: Annotated[str | None, typer.Option("--tag", help="Hardware tag; the run's own by default.")] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the most urgent.")] = 6,
    games: Annotated[int | None, typer.Option("--games", help="Games in flight, or games of the match.")] = None,
    first: Annotated[str | None, typer.Option("--first", help=f"An eval job's player: {PLAYER_FORMS}")] = None,
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
    with rest_client(url, config) as client:
        _emit_job(client.enqueue(run, kind, tag=tag, priority=priority, games=games, match=match), as_json)


@jobs_app.command("revoke")
def jobs_revoke(job: Job, url: Url = "", config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Take a job back; its games go back to the pool."""
    with rest_client(url, config) as client:
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

    with rest_client(url, config) as client:
        found = list(client.workers(role=role, host=host, tag=tag, run=run))
    lines = [f"{beat.role:<12}{beat.worker:<40}{beat.host:<20}{beat.age_s:6.1f} s  {' '.join(beat.queues)}" for beat in found]
    emit_all([asdict(beat) for beat in found], as_json, lines)


def events(
    run: Annotated[str | None, typer.Option("--run", help="One run only.")] = None,
    after: Annotated[str, typer.Option("--after", help="Go on after the event of this id.")] = "",
    audit: Annotated[
        bool, typer.Option("--audit", help="Instead: who changed what, the newest lines, and no more without --follow.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="With --audit: go on until Ctrl-C.")] = False,
    url: Url = "",
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print what becomes of runs as it happens, until Ctrl-C; broken connections are taken up again."""
    with rest_client(url, config) as client:
        if audit:
            from azq.console.auditing import audit_text, read_audit

            for line in read_audit(client, follow=follow):
                emit(line.model_dump(mode="json"), as_json, audit_text(line))
            return
        for event in client.events(run, after=after):
            about = " ".join(f"{name}={value}" for name, value in event.about.items())
            emit(event.model_dump(mode="json"), as_json, f"{event.run:<24}{event.kind:<20}{about}")
