"""Commands that measure, search and prove: `azq bench`, `estimate`, `tune`, `sweep`, `validate`, `drill` and `speedrun`."""

from __future__ import annotations

import importlib.util
import logging
import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from azq.cli.options import Answer, Command, MeasuredFile, Overrides, Preset, offering, rehearsal, with_answer, with_settings
from azq.errors import ExitCode, MissingExtra
from azq.process.interrupts import end_as_ctrl_c

if TYPE_CHECKING:
    from azq.config import Config
    from azq.parts.lab.drill import Rehearsal


bench_app = typer.Typer(no_args_is_help=True, help="Measure this machine; figures are per CPU-second of all processes.")

Seconds = Annotated[float, typer.Option("--seconds", min=0.5, help="Time to measure.")]
Evaluator = Annotated[Literal["stream", "local"], typer.Option("--evaluator", help="Who evaluates leaves.")]


def _measured(command: Command) -> None:
    """A benchmark of that name and those options."""
    name = command.__name__

    def run(config: Path | None, overrides: list[str] | None, **options: Any) -> Answer:
        from azq.config import load
        from azq.parts.lab.bench import as_text, measure

        result = measure(name, load(config, overrides or []), **options)
        return Answer(result, as_text(name, result))

    bench_app.command(name)(offering(rehearsal(run), command, config=(MeasuredFile, None), overrides=(Overrides, None)))


@_measured
def search(seconds: Seconds = 5.0, game: str = "connect_four") -> None:
    """The search core alone, with the built-in uniform evaluator."""


@_measured
def selfplay(
    evaluator: Evaluator = "stream",
    seconds: Seconds = 20.0,
    game: str = "connect_four",
    preset: Annotated[bool, typer.Option("--preset", help="Network and search as the game's preset has them.")] = False,
) -> None:
    """Self-play over all processes, with a 3x32 network and 200 simulations or as in the game's preset."""


@_measured
def inference(
    seconds: Seconds = 5.0,
    game: str = "connect_four",
    batch: Annotated[int, typer.Option("--batch", min=0, help="Leaves of a request; 0: those of a self-play group.")] = 0,
) -> None:
    """The network's forward pass, bare and through the stream, and what the stream adds to a round trip."""


@_measured
def learner(seconds: Seconds = 10.0, game: str = "connect_four") -> None:
    """The learner's step against a bare training loop."""


@bench_app.command("all")
@with_answer
@rehearsal
def bench_all(
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="Time for everything; what does not fit is named.")] = 9.0,
    size: Annotated[str, typer.Option("--size", help="tiny, small or full; full on a GPU, else small, by default.")] = "",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1")] = "auto",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for bench.json and bench.md.")] = None,
    write_docs: Annotated[Path | None, typer.Option("--write-docs", help="Markdown file whose `bench all` section is replaced.")] = None,
    overrides: Overrides = None,
) -> Answer:
    """Everything in one run: bare network, stream, self-play and learner for five games, and the peers that are installed."""
    from azq.parts.lab.bench.plan import markdown, replace_section
    from azq.parts.lab.bench.suite import run_all, write

    def save(so_far: dict[str, Any]) -> None:
        if out is not None:
            write(so_far, out)

    result = run_all(size, minutes, device, overrides or (), keep=save)
    if out is not None:
        write(result, out)
    if write_docs is not None:
        replace_section(write_docs, markdown(result))
    return Answer(result, markdown(result))


@with_answer
@rehearsal
def estimate(
    game: Annotated[str, typer.Argument(help="Game to learn, as `azq up --game` takes it: a name, FILE.py:CLASS, openspiel:NAME.")],
    preset: Preset = "",
    seconds: Annotated[float, typer.Option("--seconds", min=5.0, help="How long to play and train; more for games of many plies.")] = 30.0,
    watts: Annotated[float, typer.Option("--watts", min=0.0, help="What this machine takes at work.")] = 60.0,
    overrides: Overrides = None,
    config: MeasuredFile = None,
) -> Answer:
    """Say how fast this machine would learn a game, whether it fits and what it costs, from half a minute of play and training."""
    from azq import logs
    from azq.parts.lab.calibrate.estimate import estimate as command

    end_as_ctrl_c()
    logs.setup("estimate", level=logging.WARNING)
    report = command(game, preset=preset, overrides=overrides or (), config_file=config, seconds=seconds, watts=watts, progress=_progress)
    return Answer(report.values(), report.as_text())


@with_answer
@rehearsal
def tune(
    game: Annotated[str, typer.Argument(help="Game to play, as `azq up --game` takes it: a name, FILE.py:CLASS, openspiel:NAME.")],
    preset: Preset = "",
    seconds: Annotated[float, typer.Option("--seconds", min=30.0, help="For all trials; more finds smaller differences.")] = 360.0,
    evaluator: Annotated[str, typer.Option("--evaluator", help="stream or local; as `azq up` takes it by default.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Settings file for `azq up --config`; tuned-GAME.toml by default.")] = None,
    overrides: Overrides = None,
    config: MeasuredFile = None,
) -> Answer:
    """Measure how self-play is best spread over this machine, and write it down where it is faster than what is set by more than noise."""
    from azq import logs
    from azq.host.rundir import name_of
    from azq.parts.lab.calibrate.tune import tune as command

    file = out or Path(f"tuned-{name_of(game)}.toml")
    end_as_ctrl_c()
    logs.setup("tune", level=logging.WARNING)
    report = command(
        game,
        preset=preset,
        overrides=overrides or (),
        config_file=config,
        seconds=seconds,
        evaluator=evaluator,
        out=file,
        progress=_progress,
    )
    written = [f"written: azq up --game {game} --config {file}"] if report.changes else []
    values = report.values() | {"file": str(file) if report.changes else ""}
    return Answer(values, [*report.as_text(), *written], ExitCode.OK if report.tuned else ExitCode.INTERRUPTED)


@with_settings
def sweep(
    settings: Config,
    file: Annotated[Path, typer.Argument(help=r"The study: `\[study]`, `\[settings]`, `\[space]` (docs/sweeps.md).")],
    only_read: Annotated[bool, typer.Option("--look", help="Only what is known so far.")] = False,
    url: Annotated[str, typer.Option("--url", help="The daemon whose dashboard shows the study.")] = "",
) -> Answer:
    """Search for better settings: a study of runs, resumed where it was left; Ctrl-C ends it safely."""
    if importlib.util.find_spec("optuna") is None:
        raise MissingExtra("azq sweep needs Optuna; `pip install 'azq[sweep]'`, or `pip install optuna`")
    from azq import logs
    from azq.parts.lab.sweep.plan import read_plan
    from azq.parts.lab.sweep.sweep import as_text, as_values, open_study, swept

    end_as_ctrl_c()
    logs.setup("sweep", level=logging.WARNING)
    plan = read_plan(file)
    folder = (settings.home / "sweeps" / plan.name).absolute()
    study = open_study(plan, folder) if only_read else swept(plan, folder, settings, url, _progress)
    return Answer(as_values(plan, study), as_text(plan, study))


@with_answer
@rehearsal
def validate(
    game: str = "tic_tac_toe",
    iterations: Annotated[int, typer.Option("--iterations", min=1, help="Versions after the first.")] = 6,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the run; with --bands of the first, which the band does not have.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that play; with --bands, seeds at once.")] = 2,
    evaluator: Evaluator = "stream",
    kill: Annotated[bool, typer.Option("--kill", help="Kill a process with each version.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop everything halfway, and start it again.")] = False,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Times through the queue.")] = 1,
    bands: Annotated[str, typer.Option("--bands", metavar="GAME", help="Is what other seeds learn within the game's band?")] = "",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="With --bands: how many.")] = 5,
    out: Annotated[Path | None, typer.Option("--out", help="With --bands: folder for curves.")] = None,
    baseline: Annotated[Path | None, typer.Option("--baseline", help="An earlier answer of --json, or a file of --bands --out.")] = None,
) -> Answer:
    """Learn in lockstep in one process and through the queue: the same weights, bit for bit, or the first version that differs."""
    from azq import logs
    from azq.parts.lab.validate.validate import FaultPlan
    from azq.parts.lab.validate.validate import validate as command

    end_as_ctrl_c()
    logs.setup("validate", level=logging.WARNING)
    if bands:
        from azq.parts.lab.validate.banded import BandRequest, check_bands

        judged = check_bands(BandRequest(bands, seeds, seed, workers, baseline, out), _progress)
        return Answer(judged.values(), judged.as_text(), ExitCode.OK if judged.passed else ExitCode.CRASH)
    report = command(game, iterations, seed, evaluator, FaultPlan(workers, kill, stop), repeat, baseline, _progress)
    return Answer(report.values(), report.as_text(), ExitCode.OK if report.passed else ExitCode.CRASH)


drill_app = typer.Typer(no_args_is_help=True, help="Rehearse failures on an isolated system, with proof that nothing was lost.")


Patience = Annotated[float, typer.Option("--patience", min=1.0, help="Times the bounds on time, on a machine with other work.")]


@drill_app.command("list")
@with_answer
def drill_list() -> Answer:
    """The failures that can be rehearsed."""
    from azq.console.table import tabled
    from azq.parts.lab.drill import load_all

    scenarios = load_all()
    names = ("name", "summary", "role", "fault", "within_s")
    facts = [{name: getattr(scenario, name) for name in names} for scenario in scenarios]
    return Answer(facts, tabled([(scenario.name, scenario.summary) for scenario in scenarios], "drill", "what fails"))


@drill_app.command("run")
@with_answer
@rehearsal
def drill_run(
    name: Annotated[str, typer.Argument(help="Drills, separated by commas, or `all`.")] = "all",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Times that each fault is made.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Of what is random.")] = 0,
    patience: Patience = 1.0,
    game: str = "tic_tac_toe",
    overrides: Overrides = None,
) -> Answer:
    """Start an isolated system in a temporary folder, hurt it, time its recovery, and prove that nothing was lost."""
    from azq.parts.lab.drill import Intent, choose, load_all, rehearse

    end_as_ctrl_c()
    plan = Intent(rounds, game, tuple(overrides or ()), seed, patience)
    return _answer(rehearse(choose(load_all(), name), plan, _progress))


@drill_app.command("chaos")
@with_answer
@rehearsal
def drill_chaos(
    mtbf_s: Annotated[float, typer.Option("--mtbf-s", min=0.1, help="Mean seconds from a fault to the next, healed or not.")] = 5.0,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.0, help="How long; with --faults: at most. 10 where neither is given.")
    ] = 0.0,
    faults: Annotated[int, typer.Option("--faults", min=0, help="How many faults.")] = 0,
    seed: Annotated[int, typer.Option("--seed", help="The same faults at the same times, as far as their targets are there.")] = 0,
    patience: Patience = 1.0,
    game: str = "tic_tac_toe",
    overrides: Overrides = None,
) -> Answer:
    """Hurt an isolated system at random times, healed or not, and compare the ledger with the disk in between and at the end."""
    from azq.parts.lab.drill import ChaosPlan, Intent, run_chaos

    end_as_ctrl_c()
    lasts_s = 60 * minutes if minutes or faults else 600.0
    plan = Intent(game=game, overrides=tuple(overrides or ()), patience=patience)
    return _answer(run_chaos(ChaosPlan(mtbf_s, faults, lasts_s, seed), plan, _progress))


def _answer(rehearsal: Rehearsal) -> Answer:
    return Answer(rehearsal.values(), rehearsal.as_text(), ExitCode.OK if rehearsal.passed() else ExitCode.CRASH)


speedrun_app = typer.Typer(no_args_is_help=True, help="Who learns fastest: entries with their logs and weights, each claim checked.")

Tracks = Annotated[Path | None, typer.Option("--tracks", help="A file of tracks and classes in place of azq's.")]


@speedrun_app.command("list")
@with_answer
def speedrun_list(tracks: Tracks = None) -> Answer:
    """The entries with what their seeds cost, and the tracks with what of them cannot be done here."""
    import msgspec

    from azq.console.table import tabled
    from azq.parts.lab.speedrun.exam import missing
    from azq.parts.lab.speedrun.rules import rules_of, shipped

    rules, entries = rules_of(tracks), shipped()
    rows = [(entry.track, entry.machines, name, entry.author, entry.date, entry.cost) for name, entry in entries.items()]
    away = {name: missing(track) for name, track in rules.tracks.items()}
    lines = [": ".join(filter(None, (name, rules.tracks[name].title, why))) for name, why in away.items()]
    values = {**msgspec.to_builtins(rules), "missing": away, "entries": msgspec.to_builtins(entries)}
    return Answer(values, [*tabled(sorted(rows), "track", "class", "entry", "author", "date", "cost"), *lines])


@speedrun_app.command("run")
@with_answer
@rehearsal
def speedrun_run(
    entry: Annotated[str, typer.Argument(help="One that `list` names, or a file of TOML.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the seeds, with which a later call continues.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many, from 1 on; five make a claim.")] = 5,
    tracks: Tracks = None,
) -> Answer:
    """Learn each seed from nothing to the track's target; keep its log, games and weights."""
    import msgspec

    from azq.parts.lab.speedrun.claim import run_entry
    from azq.parts.lab.speedrun.rules import entry_named, rules_of

    end_as_ctrl_c()
    folder = out or Path(f"speedrun-{Path(entry).stem}")
    logs = run_entry(entry_named(entry), rules_of(tracks), folder, seeds, _progress)
    lines = [f"seed {log.seed}: {log.ended or f'{log.rows[-1].cpu_s:,.0f} CPU-seconds, {log.rows[-1].seconds:,.0f} s'}" for log in logs]
    seeds_run = [{"seed": log.seed, "ended": log.ended, "rows": msgspec.to_builtins(log.rows)} for log in logs]
    return Answer({"folder": str(folder), "seeds": seeds_run}, [*lines, f"azq speedrun verify {folder}"])


@speedrun_app.command("verify")
@with_answer
@rehearsal
def speedrun_verify(
    folder: Annotated[Path, typer.Argument(help="What `run` wrote.")],
    seed: Annotated[int, typer.Option("--seed", min=-1, help="Of the fresh positions and the games drawn; -1 draws it, too.")] = -1,
    games: Annotated[int, typer.Option("--games", min=1, help="Games of each seed that are searched again.")] = 3,
    tracks: Tracks = None,
) -> Answer:
    """Check a claim by its logs, by games searched again and by fresh positions; exit code 1 where something does not hold."""
    from azq.findings import conclusion
    from azq.parts.lab.speedrun.claim import verify
    from azq.parts.lab.speedrun.rules import rules_of

    end_as_ctrl_c()
    findings, values = verify(folder, rules_of(tracks), random.randrange(1 << 31) if seed < 0 else seed, games, _progress)
    return Answer(values, [*map(str, findings), conclusion(findings)], ExitCode.OK if values["holds"] else ExitCode.CRASH)


def _progress(line: str) -> None:
    typer.echo(line, err=True)


COMMANDS: dict[str, Any] = {"estimate": estimate, "tune": tune, "sweep": sweep, "validate": validate}
COMMANDS |= {"bench": bench_app, "drill": drill_app, "speedrun": speedrun_app}
