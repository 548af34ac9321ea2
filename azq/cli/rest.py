"""Commands over the daemon's REST interface: `azq runs`, `azq jobs`, `azq workers`, `azq events`.

Only `azq runs restore` and `sign` work on the control plane itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from azq.arena.players import REQUESTED_FORMS
from azq.cli.options import Answer, AsJson, ConfigFile, emit, with_answer, with_client
from azq.errors import ConfigError

if TYPE_CHECKING:
    from azq.client import Client
    from azq.config import Config
    from azq.status.schemas import JobOut, PromotionOut, RunOut

runs_app = typer.Typer(name="runs", no_args_is_help=True, help="Runs, over the daemon's REST interface.")
weights_app = typer.Typer(name="weights", no_args_is_help=True, help="What a run has learnt, as files.")
jobs_app = typer.Typer(name="jobs", no_args_is_help=True, help="Jobs, over the daemon's REST interface.")

T = TypeVar("T")
Run = Annotated[str, typer.Argument(help="Name of the run.")]
Job = Annotated[str, typer.Argument(help="Id of the job, as connect_four:17.")]
Version = Annotated[int, typer.Argument(min=1, help="A version of its weights.")]
Until = Annotated[
    str | None, typer.Option("--until", metavar="minutes=M|games=N|steps=N|money=X", help="The first goal reached ends the run.")
]
ReasonText = Annotated[str, typer.Option("--reason", help="Shown with the run.")]


def listed(values: Iterable[T], row: Callable[[T], Sequence[object]]) -> Answer:
    """A row for each of a list; `none` where it is empty."""
    from azq.console.table import tabled

    rows = list(values)
    return Answer(rows, tabled(map(row, rows)) or "none")


def _goals(until: str | None) -> dict[str, float] | None:
    from azq.goals import Goals

    return None if until is None else dict(Goals.parse(until).until)


def _of_run(run: RunOut) -> Answer:
    goals = ", ".join(f"{goal}={limit:g}" for goal, limit in run.until.items()) or "no end"
    why = f" ({run.reason})" if run.reason else ""
    network = f", network {run.network}" if run.network else ""
    return Answer(run, f"{run.name}  {run.game}  {run.state}{why}, {run.active_s / 60:.1f} min, {goals}{network}")


@runs_app.command("list")
@with_client
def runs_list(
    client: Client,
    state: Annotated[str | None, typer.Option("--state", help="running, paused, finished, failed")] = None,
    game: Annotated[str | None, typer.Option("--game")] = None,
) -> Answer:
    """List runs."""
    return listed(client.runs(state=state, game=game), lambda run: (run.name, run.game, run.state, f"{run.active_s / 60:.1f} min"))


@runs_app.command("show")
@with_client
def runs_show(client: Client, run: Run) -> Answer:
    """Show one run."""
    return _of_run(client.run(run))


@runs_app.command("create")
@with_client
def runs_create(
    client: Client,
    run: Run,
    game: Annotated[str | None, typer.Option("--game", help="Its preset is below the settings.")] = None,
    preset: Annotated[str, typer.Option("--preset", help="A variant of the preset, such as gpu.")] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="A setting of the run.")] = None,
    until: Until = None,
) -> Answer:
    """Create a run, which starts at once."""
    from azq.config import parse_overrides

    sections = parse_overrides(settings or [])
    return _of_run(client.create_run(run, game=game, preset=preset, sections=sections, until=_goals(until)))


@runs_app.command("pause")
@with_client
def runs_pause(client: Client, run: Run, reason: ReasonText = "") -> Answer:
    """Pause a run: its open games go back to the pool."""
    return _of_run(client.pause_run(run, reason))


@runs_app.command("resume")
@with_client
def runs_resume(client: Client, run: Run, until: Until = None) -> Answer:
    """Go on with a run, towards other goals where they are given."""
    return _of_run(client.resume_run(run, until=_goals(until)))


@runs_app.command("until")
@with_client
def runs_until(client: Client, run: Run, until: Until = "") -> Answer:
    """Give a run other goals, counted from its creation; without --until it has no end."""
    return _of_run(client.change_run(run, until=_goals(until) or {}))


@runs_app.command("finish")
@with_client
def runs_finish(client: Client, run: Run, reason: ReasonText = "") -> Answer:
    """End a run; it can be resumed."""
    return _of_run(client.finish_run(run, reason))


@weights_app.command("export")
@with_client
def weights_export(
    client: Client,
    host_settings: Config,
    run: Annotated[str, typer.Option("--run", help="Name of the run.")],
    version: Annotated[str, typer.Option("--version", help="A number, latest, or best: the highest rated.")] = "latest",
    as_format: Annotated[str, typer.Option("--format", metavar="onnx|safetensors", help="onnx is what browsers run.")] = "safetensors",
    out: Annotated[Path | None, typer.Option("--out", help="The file to write; <run>-<version>.<format> by default.")] = None,
) -> Answer:
    """Write weights into a file, verified."""
    from azq.console.remote import export_weights

    result = export_weights(host_settings, client, run, version, as_format, out)
    return Answer(result, f"{result['file']}: version {result['version']}, {result['size']} bytes, sha256 {result['sha256']}")


@weights_app.command("pretrained")
@with_answer
def weights_pretrained(name: Annotated[str | None, typer.Argument(metavar="GAME", help="Of this game alone.")] = None) -> Answer:
    """List the weights that come with azq: from which run each is, and how well it was measured to play; no daemon is asked."""
    from azq import pretrained
    from azq.console.remote import pretrained_text

    cards = [pretrained.card(game) for game in ([name] if name else pretrained.names())]
    return Answer([pretrained.as_values(card) for card in cards], pretrained_text(cards))


@weights_app.command("list")
@with_client
def weights_list(
    client: Client,
    run: Annotated[str, typer.Option("--run", help="Name of the run.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=600, help="So many of the newest.")] = 20,
) -> Answer:
    """List published weights: step, size, Elo, graded errors, hash, what they played, what became of them, and which serve."""
    from azq.console.remote import weights_row

    return listed(client.weights(run, limit=limit), weights_row)


def _of_promotion(done: PromotionOut) -> Answer:
    return Answer(done, f"{done.run}: version {done.version} {done.deed.replace('_', ' ')}; version {done.serving} serves")


@weights_app.command("promote")
@with_client
def weights_promote(client: Client, run: Run, version: Version, reason: ReasonText = "") -> Answer:
    """Have self-play follow a version from now on."""
    return _of_promotion(client.promote_weights(run, version, reason))


@weights_app.command("rollback")
@with_client
def weights_rollback(client: Client, run: Run, reason: ReasonText = "") -> Answer:
    """Have self-play follow the version that served before."""
    return _of_promotion(client.roll_back_weights(run, reason))


@weights_app.command("pin")
@with_client
def weights_pin(client: Client, run: Run, version: Version, reason: ReasonText = "") -> Answer:
    """Have self-play follow a version until it is unpinned, whatever is published or promoted."""
    return _of_promotion(client.pin_weights(run, version, reason))


@weights_app.command("unpin")
@with_client
def weights_unpin(client: Client, run: Run, reason: ReasonText = "") -> Answer:
    """Have self-play follow the best version again, or the newest."""
    return _of_promotion(client.unpin_weights(run, reason))


@runs_app.command("delete")
@with_client
def runs_delete(
    client: Client,
    run: Run,
    files: Annotated[
        bool, typer.Option("--files", help="Its folder too, with games, checkpoints and weights; on the host that has it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Forget a run that is paused, finished or failed: its ledger, jobs, results and history. Its folder stays unless --files."""
    from azq.console.remote import delete_run

    confirm = (lambda _: True) if yes else (lambda question: typer.confirm(question, err=True))
    deleted = delete_run(client, run, files, confirm)
    done = "deleted" if deleted["deleted"] else "kept"
    return Answer(deleted, f"{run}: {done}" + (f", with {deleted['folder']}" if deleted["files"] else ""))


@runs_app.command()
@with_answer
def restore(
    folder: Annotated[Path | None, typer.Argument(help="The run's folder on this host; below home where only --run is given.")] = None,
    run: Annotated[str, typer.Option("--run", help="Name of the run; that of the folder by default.")] = "",
    from_store: Annotated[
        bool, typer.Option("--from-store", help="Bring the run there first, from the store (store.url) that keeps its games.")
    ] = False,
    config: ConfigFile = None,
) -> Answer:
    """Let a run go on from its folder, or its store, after its control plane was lost; or write off what its folder lost."""
    from azq.config import load
    from azq.host.restore import restore_kept, restore_run

    if folder is None and not run:
        raise typer.BadParameter("name the run's folder, or --run")
    settings = load(config)
    name = run or (folder.absolute().name if folder else "")
    done = restore_kept(settings, name, folder) if from_store else restore_run(settings, folder or settings.home / run, run)
    return Answer(done, f"run {done['run']} goes on from {done['games']} games; {done['written_off']} written off")


@runs_app.command()
@with_answer
def sign(run: Annotated[str, typer.Option("--run", help="Name of the run.")], config: ConfigFile = None) -> Answer:
    """Trust what the store (store.url) holds of a run, unsigned or not: of an azq that did not sign, or where the key is lost."""
    from azq.config import load
    from azq.host.restore import sign_kept

    done = sign_kept(load(config), run)
    return Answer(done, f"{done['folder']}: signed {done['signed']} objects")


def _of_job(job: JobOut) -> Answer:
    detail = f"attempt {job.attempt}" + (f", {job.owner}" if job.owner else "") + (f", {job.error}" if job.error else "")
    return Answer(job, f"{job.job_id}  {job.kind}.{job.tag}  {job.state}  {detail}")


@jobs_app.command("list")
@with_client
def jobs_list(
    client: Client,
    run: Annotated[str | None, typer.Option("--run")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="selfplay or eval")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    state: Annotated[str | None, typer.Option("--state", help="queued, leased, done, failed, cancelled")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The newest ended jobs too.")] = False,
) -> Answer:
    """List jobs."""
    result = client.jobs(run=run, kind=kind, tag=tag, state=state, active=not ended)
    return listed(result, lambda job: (job.job_id, f"{job.kind}.{job.tag}", job.state, f"attempt {job.attempt}", job.owner, job.error))


@jobs_app.command("show")
@with_client
def jobs_show(client: Client, job: Job) -> Answer:
    """Show one job."""
    return _of_job(client.job(job))


@jobs_app.command("enqueue")
@with_client
def jobs_enqueue(
    client: Client,
    run: Run,
    kind: Annotated[str, typer.Option("--kind", help="selfplay or eval")] = "selfplay",
    tag: Annotated[str | None, typer.Option("--tag", help="Hardware tag; the run's own by default.")] = None,
    priority: Annotated[int, typer.Option("--priority", min=0, max=9, help="0 is the most urgent.")] = 6,
    games: Annotated[int | None, typer.Option("--games", help="Games in flight, or games of the match.")] = None,
    first: Annotated[str | None, typer.Option("--first", help=f"An eval job's player: {REQUESTED_FORMS}")] = None,
    second: Annotated[str | None, typer.Option("--second", help="The opponent.")] = None,
    num_simulations: Annotated[int, typer.Option(help="Simulations a move, of a match.")] = 64,
) -> Answer:
    """Enqueue a self-play job, or with --kind eval a match."""
    match: dict[str, Any] | None = None
    if kind == "eval":
        match = {"first": first or "latest", "second": second or "uct:100", "games": games or 40, "num_simulations": num_simulations}
        games = None
    return _of_job(client.enqueue(run, kind, tag=tag, priority=priority, games=games, match=match))


@jobs_app.command("revoke")
@with_client
def jobs_revoke(client: Client, job: Job) -> Answer:
    """Take a job back; its games go back to the pool."""
    return _of_job(client.revoke_job(job))


@with_client
def workers(
    client: Client,
    what: Annotated[str, typer.Argument(metavar="[list]", help="What there is to do, as with `azq runs`; may be left out.")] = "list",
    role: Annotated[str | None, typer.Option("--role", help="selfplay, eval, inference, learner, daemon")] = None,
    host: Annotated[str | None, typer.Option("--host")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    run: Annotated[str | None, typer.Option("--run")] = None,
) -> Answer:
    """List live processes, over the daemon's REST interface."""
    if what != "list":
        raise ConfigError(f"azq workers {what}: there is `azq workers list`")
    result = client.workers(role=role, host=host, tag=tag, run=run)
    return listed(result, lambda beat: (beat.role, beat.worker, beat.host, f"{beat.age_s:.1f} s", " ".join(beat.queues)))


@with_client
def events(
    client: Client,
    run: Annotated[str | None, typer.Option("--run", help="One run only.")] = None,
    after: Annotated[str, typer.Option("--after", help="Go on after the event of this id.")] = "",
    audit: Annotated[bool, typer.Option("--audit", help="Instead: who changed what, the newest lines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what becomes of runs as it happens, until Ctrl-C; broken connections are taken up again."""
    if audit:
        from itertools import islice

        from azq.console.remote import AUDIT_LINES, audit_text

        for line in reversed(list(islice(client.audit(), AUDIT_LINES))):
            emit(line, as_json, audit_text(line))
        return
    for event in client.events(run, after=after):
        about = " ".join(f"{name}={value}" for name, value in event.about.items())
        emit(event, as_json, f"{event.run:<24}{event.kind:<20}{about}")
