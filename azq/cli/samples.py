"""`azq samples`: what a run's recorded games look like, and whether those of two sources or runs are of one kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from azq.cli.options import Answer, names, with_settings

if TYPE_CHECKING:
    from azq.config import Config

samples_app = typer.Typer(no_args_is_help=True, help="What a run's recorded games look like; read from the learner's folder on this host.")

Run = Annotated[str, typer.Argument(help="Name of the run.")]
Newest = Annotated[int, typer.Option("--games", min=1, help="The newest so many of a run.")]
OpeningPlies = Annotated[int, typer.Option("--opening-plies", min=1, help="What counts as an opening.")]
By = Annotated[str | None, typer.Option("--by", metavar="source|worker|version", help="What tells the games apart.")]


@samples_app.command("stats")
@with_settings
def samples_stats(
    settings: Config,
    run: Run,
    by: By = None,
    games: Newest = 100_000,
    opening_plies: OpeningPlies = 2,
    picture: Annotated[Path | None, typer.Option("--plot", help="Also draw it into this PNG or SVG (extra `plot`).")] = None,
) -> Answer:
    """Lengths, results, policies, values against results, versions, openings, duplicates and symmetry of a run's games."""
    from azq.console.samples import draw, read, stats_text
    from azq.samples.stats import stats

    rules, played = read(settings, run, games, opening_plies)
    groups = played.groups(by)
    found = {name: stats(rules, rows) for name, rows in groups.items()}
    if picture is not None:
        draw(found, groups, picture, run)
    return Answer(found, stats_text(found))


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
    """Test whether the games of two sources of a run, or of two runs, are of one kind."""
    from azq.console.samples import diff_text, pair
    from azq.samples.diff import diff

    groups = pair(settings, (run, other), by or "source", names(chosen), games, opening_plies)
    found = diff(*groups.values(), match_versions=other is None if match is None else match)
    return Answer({"groups": list(groups), "diff": found}, diff_text(found, list(groups)))


@with_settings
def balance(
    settings: Config,
    run: Run,
    games: Newest = 10_000,
) -> Answer:
    """Say whether a run's game is fair: results by seat, draws, lengths, forced and dead actions, openings, and the trend."""
    from azq.console.balance import balance_text, read_balance

    found = read_balance(settings, run, games)
    return Answer(found, balance_text(found))
