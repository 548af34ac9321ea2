"""Commands that only look: at runs and their games, at everything live, at this machine, at settings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, AsJson, ConfigFile, Overrides, Preset, RunName, names, with_answer, with_settings
from azq.errors import ExitCode

if TYPE_CHECKING:
    from azq.config import Config

devices_app = typer.Typer(name="devices", no_args_is_help=True, help="Show the GPUs and cores of this machine, and what each does.")
config_app = typer.Typer(name="config", no_args_is_help=True, help="Show the settings in force.")


@with_settings
def status(settings: Config, run: RunName = None, as_json: AsJson = False) -> None:
    """Show runs, workers, queues and rates."""
    from azq.console.show import show_status

    show_status(settings, run, as_json)


@with_settings
def ledger(settings: Config, run: RunName = None) -> Answer:
    """Show the proof that no game was lost: opened = finished + open + abandoned, finished = inserted."""
    from azq.console.show import ledger_counts

    values = ledger_counts(settings, run)
    state = "OK" if values["balanced"] else "NOT BALANCED"
    answer = f"Ledger {state}: {values['abandoned']} games abandoned, {values['duplicates_dropped']} duplicates dropped"
    return Answer(values, [answer, *(f"{name:<20} {value}" for name, value in values.items() if name != "run")])


@with_settings
def top(
    settings: Config,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between frames.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Watch all runs, queues and workers in the terminal, with or without a daemon; press q to quit."""
    from azq.console.top import top as command

    command(settings, once=once, as_json=as_json, every_s=every_s)


@with_settings
def doctor(
    settings: Config,
    speed: Annotated[bool, typer.Option("--speed", help="Name the bottleneck of a run, and the setting to change, instead.")] = False,
    run: RunName = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="How long --speed watches.")] = 20.0,
) -> Answer:
    """Check settings, disk, brokers, clock, daemon, workers and weights from here; exit code 2 if a check fails."""
    from azq.console.doctor import examine, examine_speed
    from azq.findings import conclusion

    if speed:
        report = examine_speed(settings, run, seconds)
        return Answer(report.values(), report.text())
    checks = list(examine(settings))
    failed = any(check.severity == "fail" for check in checks)
    values = {"ok": not failed, "checks": [check.values() for check in checks]}
    return Answer(values, [conclusion(checks), *map(str, checks)], ExitCode.CONFIG if failed else ExitCode.OK)


@with_settings
def profile(
    settings: Config,
    run: Annotated[str, typer.Argument(help="A running run.")],
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="Seconds to watch.")] = 10.0,
) -> Answer:
    """Show where the time of a running run goes: shares of wall time and CPU by role and phase."""
    from azq.console.profile import as_text, profile_run

    result = profile_run(settings, run, seconds)
    return Answer(result, as_text(result))


@with_settings
def compare(
    settings: Config,
    runs: Annotated[list[str], typer.Argument(help="Names of runs of one game, of this home folder or control plane.")],
    by: Annotated[str, typer.Option("--by", metavar="minutes|games|steps|cpu-s", help="What curves are compared over.")] = "minutes",
    weights: Annotated[list[str] | None, typer.Option("--weights", help="Of each run in turn, for the positions; the newest.")] = None,
    positions: Annotated[int, typer.Option("--positions", min=0, help="Graded positions that all play; 0: none.")] = 600,
    graded: Annotated[Path | None, typer.Option("--graded", help="A file of graded positions in their place; all are played.")] = None,
    num_simulations: Annotated[int, typer.Option(min=1, help="Simulations a position.")] = 64,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Newest recorded games of each that are compared; 0: none.")] = 2000,
    picture: Annotated[Path | None, typer.Option("--plot", help="Also draw the curves into this file (.svg).")] = None,
) -> Answer:
    """Compare runs: curves over each other, networks on the same graded positions with paired intervals, recorded games, settings."""
    from azq.console.compare import compare_runs, comparison_text, comparison_values, plot_comparison, samples_beside

    compared, paired = compare_runs(settings, runs, by, weights or [], positions, num_simulations, graded)
    beside = samples_beside(settings, runs, samples)
    if picture is not None:
        plot_comparison(compared, picture)
    return Answer(comparison_values(compared, paired, beside), comparison_text(compared, paired, beside))


@with_settings
def why(
    settings: Config,
    run: Annotated[str, typer.Argument(help="Name of the run.")],
    games: Annotated[int, typer.Option("--games", min=1, help="Newest recorded games to check.")] = 2_000,
) -> Answer:
    """Find what keeps a run from learning: each problem with its figures and the one setting to change."""
    from azq.console.show import why as command
    from azq.console.show import why_text

    result = command(settings, run, games)
    return Answer(result, why_text(result))


@with_settings
def report(
    settings: Config,
    run: Annotated[str, typer.Argument(help="A paused or finished run.")],
    output: Annotated[Path | None, typer.Option("--output", help="The file, .html or .md; RUN.html by default.")] = None,
) -> Answer:
    """Write a report of a run as one file: timeline, curves, versions, ledger, cost, faults, settings."""
    from azq.console.report import report as command

    written = command(settings, run, output or Path(f"{run}.html"))
    return Answer({"run": run, "file": str(written)}, f"{written}: the report of run {run}")


@config_app.command("show")
@with_settings
def config_show(settings: Config) -> Answer:
    """Print every setting in force; secrets are masked."""
    from azq.config.loading import to_toml
    from azq.masking import masked_settings

    values = masked_settings(settings.model_dump(mode="json"))
    return Answer(values, to_toml(values))


@devices_app.command("plan")
@with_answer
def devices_plan(
    game: Annotated[str | None, typer.Option("--game", help="Game to learn; connect_four by default.")] = None,
    run: RunName = None,
    preset: Preset = "",
    overrides: Overrides = None,
    config: ConfigFile = None,
) -> Answer:
    """Show what `azq up` with these options assigns to each device of this machine, and why."""
    from azq.console.up import UpRequest, read_start
    from azq.host.devices import Wishes, described, detect, plan

    machine = detect()
    result = plan(machine, Wishes.of(read_start(UpRequest(game, run, overrides or (), None, config, preset)).config))
    return Answer({"machine": asdict(machine), "plan": asdict(result)}, described(machine, result))


samples_app = typer.Typer(
    name="samples", no_args_is_help=True, help="Show statistics of a run's recorded games, from the learner's folder on this host."
)

Run = Annotated[str, typer.Argument(help="Name of the run.")]
Newest = Annotated[int, typer.Option("--games", min=1, help="The newest so many of a run.")]
OpeningPlies = Annotated[int, typer.Option("--opening-plies", min=1, help="What counts as an opening.")]
By = Annotated[str | None, typer.Option("--by", metavar="source|worker|version", help="What tells the games apart.")]


@samples_app.command("stats")
@with_settings
def samples_stats(settings: Config, run: Run, by: By = None, games: Newest = 100_000, opening_plies: OpeningPlies = 2) -> Answer:
    """Show lengths, results, policies, values against results, versions, openings, duplicates and symmetry of a run's games."""
    from azq.console.samples import read, stats_text
    from azq.samples.stats import stats

    rules, played = read(settings, run, games, opening_plies)
    values = {name: stats(rules, rows) for name, rows in played.groups(by).items()}
    return Answer(values, stats_text(values))


@samples_app.command("diff")
@with_settings
def samples_diff(
    settings: Config,
    run: Run,
    other: Annotated[str | None, typer.Argument(help="A second run; without one, two sources of the first.")] = None,
    by: By = "source",
    chosen: Annotated[str, typer.Option("--groups", metavar="A,B", help="Two groups of --by; needed where there are more.")] = "",
    games: Newest = 100_000,
    opening_plies: OpeningPlies = 2,
    match: Annotated[bool | None, typer.Option("--match-versions/--any-version", help="Same weight versions only; of one run yes.")] = None,
) -> Answer:
    """Test whether the games of two sources of a run, or of two runs, have the same distribution."""
    from azq.console.samples import diff_text, pair
    from azq.samples.diff import diff

    groups = pair(settings, (run, other), by or "source", names(chosen), games, opening_plies)
    result = diff(*groups.values(), match_versions=other is None if match is None else match)
    return Answer({"groups": list(groups), "diff": result}, diff_text(result, list(groups)))
