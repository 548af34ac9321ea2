"""`azq samples`: recorded games from the folders of runs, their figures in tables and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from azq.config import Config
from azq.console.move import folder_of
from azq.console.table import tabled
from azq.errors import ConfigError, NotFound
from azq.games import Game
from azq.host.game_files import load_game
from azq.replay.readers import SegmentReader
from azq.samples.diff import TOO_FEW, SamplesDiff
from azq.samples.played import PlayedGames, read_games
from azq.samples.stats import SampleStats, Spread
from azq.wire.messages import SampleEvent

Groups = Mapping[str, NDArray[Any]]
SHOWN = 20  # groups in a table


def games_of(config: Config, run: str, most: int, uid: int | None = None) -> tuple[Game, Iterator[SampleEvent]]:
    """The rules of a run and its newest games, oldest first, or the one of this number. Raises `NotFound`, `StoreError`."""
    folder = folder_of(config, None, run)
    settings = folder.sections().run
    rules, reader = load_game(config, settings.game, settings.params, folder.settings), SegmentReader(folder.path / "segments")
    return rules, iter([reader.find(uid)]) if uid is not None else reader.last(most)


def read(config: Config, run: str, most: int, opening_plies: int) -> tuple[Game, PlayedGames]:
    """The rules of a run and figures of its newest games. Raises `NotFound` for no such run and for one without games here."""
    rules, events = games_of(config, run, most)
    return rules, read_games(rules, events, opening_plies)


def pair(config: Config, runs: tuple[str, str | None], by: str, chosen: Sequence[str], most: int, opening_plies: int) -> Groups:
    """Two groups of games by name: those of two runs, or two of one run, all that there are where none are `chosen`.

    Raises `ConfigError` for runs of different games or a run named twice, `NotFound` where there are no two such groups.
    """
    run, other = runs
    if other == run:
        raise ConfigError(f"{run} does not differ from itself; name another run, or one run and --groups A,B")
    rules, played = read(config, run, most, opening_plies)
    if other is not None:
        other_rules, other_played = read(config, other, most, opening_plies)
        if (rules.name, rules.params) != (other_rules.name, other_rules.params):
            raise ConfigError(
                f"{run} plays {rules.name} {rules.params}, {other} {other_rules.name} {other_rules.params}; name runs of one game"
            )
        return {run: played.rows, other: other_played.rows}
    groups = played.groups(by)
    wanted = tuple(chosen or groups)
    if len(wanted) != 2 or not groups.keys() >= set(wanted):
        there = f"{len(groups)} ({', '.join(list(groups)[:SHOWN])})"
        raise NotFound(f"two groups are compared; by {by} {run} has {there}: --groups A,B names two, or name a second run")
    return {name: groups[name] for name in wanted}


def stats_text(groups: Mapping[str, SampleStats]) -> str:
    """A column a group, the largest ones."""
    shown = dict(sorted(groups.items(), key=lambda group: -group[1].games)[:SHOWN])
    columns = [figures_of(stats) for stats in shown.values()]
    lines = tabled(([label, *(column[label] for column in columns)] for label in columns[0]), "", *(f"#{name[-28:]}" for name in shown))
    more = len(groups) - len(shown)
    return "\n".join([*lines, f"and {more} smaller groups: --json"] if more else lines)


def figures_of(stats: SampleStats) -> dict[str, str]:
    """The figures of a group as people read them, by name."""
    even = stats.symmetry
    off = sum(bin.plies * abs(bin.value - bin.result) for bin in stats.calibration) / max(1, sum(bin.plies for bin in stats.calibration))
    return {
        "games, plies": f"{stats.games:,}, {stats.plies:,}",
        "length (10, 50, 90 %)": _spread(stats.length),
        **(
            {"wins by seat, shared": " ".join(f"{share:.3f}" for share in (*stats.wins, stats.shared))}
            if stats.score is None
            else {"score": _spread(stats.score)}
        ),
        "entropy of policies": _spread(stats.entropy),
        "simulations": _spread(stats.simulations),
        "root value": _spread(stats.value),
        "squared error of values": f"{stats.squared_error:.4f}",
        "miscalibration": f"{off:.4f}",
        "weight versions": f"{stats.versions[0]} to {stats.versions[1]}",
        "age of weights": _spread(stats.age),
        "openings, commonest": f"{stats.openings:,}, {stats.commonest_opening:.1%}",
        "duplicates": f"{stats.duplicates:.2%}",
        "asymmetry of first moves": "-" if even is None else f"{even.imbalance:.3f} (p = {even.p_value:.3f})",
    }


def _spread(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.mean:.4g} ({spread.low:.3g} {spread.median:.3g} {spread.high:.3g})"


def diff_text(difference: SamplesDiff, names: Sequence[str]) -> str:
    """A line a figure, then what it means."""
    rows = (
        (
            figure.figure,
            *(f"{mean:.4g}" for mean in (figure.first, figure.second)),
            *(f"{distance:.3f}" for distance in (figure.distance, figure.noticed_from)),
            *(f"{chance:.4f}" for chance in (figure.p_value, figure.corrected)),
            figure.verdict,
        )
        for figure in difference.figures
    )
    lines = tabled(rows, "", *(f"#{name[-14:]}" for name in names), "#distance", "#noticed", "#p", "#p (Holm)", "")
    text = "; play more of the same versions, or compare with --any-version" if difference.verdict == TOO_FEW else ""
    many = ", ".join(
        f"{name} {games:,} games ({left:,} left out)"
        for name, games, left in zip(names, difference.games, difference.left_out, strict=True)
    )
    return "\n".join([*lines, many, f"{difference.verdict}{text}"])
