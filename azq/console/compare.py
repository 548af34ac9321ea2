"""`azq compare`: runs of a home folder beside each other, and their networks on the same graded positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.arena.player import MAX_SLOTS
from azq.arena.regret import judged
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.console.play import Seating, seated
from azq.console.samples import diff_text, pair
from azq.console.svg import line_chart, write_charts
from azq.console.table import tabled
from azq.errors import ConfigError
from azq.host.brokers import reading_control
from azq.ledger import Ledger
from azq.notation.units import unit
from azq.ratings import positions
from azq.samples.diff import SamplesDiff, diff
from azq.samples.played import OPENING_PLIES
from azq.stats import paired_interval
from azq.status.compare import GradedPair, RunComparison, checked, compare
from azq.status.curves import AXES, FIGURES, read_course
from azq.status.strength import NAMES, TEXTS

TITLES: dict[str, str] = {**NAMES, "loss_policy": "policy loss", "loss_value": "value loss"}
PAIRED = ("errors", "loss", "policy_regret", "search_regret", "value_error")  # of networks, position by position


def compare_runs(
    config: Config, runs: Sequence[str], by: str, weights: Sequence[str], count: int, num_simulations: int, file: Path | None = None
) -> tuple[RunComparison, list[dict[str, Any]]]:
    """Curves and settings, and each later run against the first on graded positions: those of a file, else `count` of the game's own.

    Raises `ConfigError` for wrong flags, `InvalidRequest` and `NotFound` as `compare`, `NotFound` for missing weights.
    """
    if by not in AXES:
        raise ConfigError(f"--by {by!r} is not one of {', '.join(AXES)}")
    if len(weights) not in (0, len(runs)):
        raise ConfigError(f"--weights names {len(weights)} for {len(runs)} runs; give one for each in turn, or none for the newest")
    with reading_control(config) as client:
        compared = compare([read_course(Ledger(client), RedisBus(client), name) for name in checked(runs)], by)
    if file is None and not (count and positions.available(compared.game)):
        return compared, []
    chosen = positions.read(file) if file else positions.choose(positions.load(compared.game), count, 0)
    graded = [
        _marked(config, run, version, num_simulations, compared.game, chosen)
        for run, version in zip(runs, weights or ["latest"] * len(runs), strict=True)
    ]
    return compared, [_paired(run, graded[0], marked) for run, marked in zip(runs[1:], graded[1:], strict=True)]


Marked = tuple[str, dict[str, NDArray[np.float64]]]  # the player, and what `PAIRED` names, a number each position


def _marked(config: Config, run: str, weights: str, num_simulations: int, game: str, chosen: Sequence[positions.Position]) -> Marked:
    seating = Seating(game, run, weights, num_simulations, slots=MAX_SLOTS)
    with seated(config, seating, ["latest"]) as (rules, (player,)):
        marks, regret = judged(rules, player, chosen)
        scale = unit(rules).loss_scale
        columns: dict[str, Sequence[float] | NDArray[np.float64]] = {
            "errors": [mark.loses_class for mark in marks],
            "loss": [scale * mark.loss for mark in marks],
        }
        if regret:
            columns |= {"policy_regret": scale * regret.policy, "search_regret": scale * regret.search, "value_error": regret.value_error}
        return player.name, {name: np.asarray(column, np.float64) for name, column in columns.items()}


def _paired(run: str, first: Marked, other: Marked) -> dict[str, Any]:
    """What the other run's moves have more of than the first one's, position by position, with 95 % intervals."""
    figures: dict[str, Any] = {"run": run, "players": [first[0], other[0]], "positions": len(first[1]["errors"])}
    for name in first[1].keys() & other[1].keys():
        ours, theirs = first[1][name], other[1][name]
        difference, low, high = paired_interval(theirs - ours)
        values = [round(float(column.mean()), 6) for column in (ours, theirs)]
        figures[name] = {"values": values, "difference": difference, "low": low, "high": high}
    return figures


def samples_beside(config: Config, runs: Sequence[str], games: int) -> dict[str, SamplesDiff]:
    """Whether the newest games of each later run are of the same kind as those of the first; raises `NotFound` where none are here."""
    return {
        run: diff(*pair(config, (runs[0], run), "", (), games, OPENING_PLIES).values(), match_versions=False) for run in runs[1:] if games
    }


def comparison_values(compared: RunComparison, paired: Sequence[dict[str, Any]], samples: Mapping[str, SamplesDiff]) -> dict[str, Any]:
    """All of it in plain values."""
    return {**asdict(compared), "paired": list(paired), "samples": {run: asdict(difference) for run, difference in samples.items()}}


def comparison_text(compared: RunComparison, paired: Sequence[dict[str, Any]], samples: Mapping[str, SamplesDiff]) -> list[str]:
    """Tables for people."""
    names = [run.run for run in compared.runs]
    rows = [["state", *(run.state for run in compared.runs)], ["weights", *(f"v{run.weight_version}" for run in compared.runs)]]
    rows += [[axis, *(f"{run.reached.on(axis):,.{axis == 'minutes':d}f}" for run in compared.runs)] for axis in AXES]
    common = [[f"{TITLES[row.figure]} at {row.x:,.4g}", *(_figure(row.figure, value) for value in row.values)] for row in compared.common]
    columns = ["", *(f"#{name}" for name in names)]
    lines = [*tabled(rows, *columns), "", f"where all were, by {compared.by}", *tabled(common, *columns)]
    if paired:
        lines += ["", f"on the same graded positions, more than {names[0]} (95 %)"]
    for row in paired:
        for name in (figure for figure in PAIRED if figure in row):
            pair = row[name]
            text = f"{pair['difference']:+.4f} ({pair['low']:+.4f} to {pair['high']:+.4f})"
            values = " against ".join(f"{value:.4f}" for value in reversed(pair["values"]))
            lines.append(f"{row['run']} {row['players'][1]}, {name}: {text}: {values} of {row['players'][0]}, {row['positions']} positions")
    if compared.graded and not paired:
        lines += ["", f"as recorded, on the same graded positions, more than {names[0]} (95 %)"]
        lines += [_graded(names[0], pair) for pair in compared.graded]
    for run, difference in samples.items():
        lines += ["", "recorded games", diff_text(difference, [names[0], run])]
    differing = [[row.setting, *("-" if value is None else value for value in row.values)] for row in compared.settings]
    return [*lines, *(["", "settings that differ", *tabled(differing, *columns)] if differing else [])]


def _graded(first: str, pair: GradedPair) -> str:
    low, high = (float("inf") if bound is None else bound for bound in (pair.low, pair.high))
    values = " against ".join(f"{share:.4f}" for share in reversed(pair.errors))
    text = f"{pair.run} v{pair.weight_versions[1]}, errors: {pair.difference:+.4f} ({low:+.4f} to {high:+.4f})"
    return f"{text}: {values} of {first} v{pair.weight_versions[0]}, {pair.positions} positions"


def _figure(name: str, value: float) -> str:
    return TEXTS.get(name, "{:.4f}").format(value)


def plot_comparison(compared: RunComparison, out: Path) -> None:
    """Draws the curves over each other, intervals as bands. Raises as `write_charts`."""
    curves = {name: {run.run: curve for run in compared.runs if (curve := run.curves.get(name))} for name in FIGURES}
    write_charts([line_chart(TITLES[name], lines, compared.by, partial(_figure, name)) for name, lines in curves.items() if lines], out)
