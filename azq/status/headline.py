"""How a run does, in one sentence made of facts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import hypot

from azq.ledger.types import RunState
from azq.ratings.elo import ANCHOR
from azq.status.strength import LESS_IS_BETTER, TOO_FEW, Kind, Measure, Trends

STANDING_STILL_S = 900.0  # after which a measure that did not move is worth a word
CLEAR = 0.1  # of a measure without an interval


@dataclass(frozen=True, slots=True)
class Situation:
    """What the sentence is made of."""

    run: str
    state: RunState
    active_s: float
    first: Kind  # what the game is judged by
    trends: Trends = field(default_factory=dict)
    eta_s: float | None = None
    games: int = 0
    step: int = 0
    anchored: bool = False  # whether a match was played with the player whose Elo is 0
    trouble: str = ""  # why there is nothing to learn from, or who dies again and again


def headline(now: Situation) -> str:
    """The verdict with the first and the newest value of the game's measure, the Elo and the time left."""
    values = now.trends.get(now.first, ())
    if now.state is RunState.RUNNING and now.trouble:
        return f"Not learning: {now.trouble}"
    if now.state is not RunState.RUNNING:
        return _joined(now.state.capitalize(), values, now)
    if len(values) >= 2:
        return _joined(_verdict(values, now), values, now)
    if not now.step:
        return f"Starting: {now.games:,} games so far, training begins soon" if now.games else "Starting: no game is finished yet"
    return _joined("Training", values, now) if values else f"Training: step {now.step:,}, the first measure of strength comes soon"


def not_learning(evidence: str, *, sure: bool) -> str:
    """The sentence where a rule has something against the run."""
    return f"{'Not learning' if sure else 'Perhaps not learning'}: {evidence}"


def span(seconds: float) -> str:
    """A time in its largest unit: 40 s, 7 min, 5 h, 2 d."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _verdict(values: Sequence[Measure], now: Situation) -> str:
    elo = now.trends.get("elo", ())
    change = _change_of(values) if now.first not in LESS_IS_BETTER else -_change_of(values)
    if change > 0 or (change == 0 and len(elo) > 1 and _change_of(elo) > 0):
        return "Learning well"
    if change == 0 and now.active_s < STANDING_STILL_S:
        return "Training, no clear change yet"
    return f"{'Getting worse' if change < 0 else 'Standing still'} (`azq why {now.run}` looks for the cause)"


def _change_of(values: Sequence[Measure]) -> float:
    """How far the newest value is from the first; 0 where that is within the 95 % interval of the difference."""
    first, last = values[0], values[-1]
    if first.value is None or last.value is None:
        return 0.0
    change = last.value - first.value
    if first.low is None or first.high is None or last.low is None or last.high is None:
        noise = CLEAR * abs(first.value)
    else:
        noise = hypot((first.high - first.low) / 2, (last.high - last.low) / 2)
    return change if abs(change) > noise else 0.0


def _joined(verdict: str, values: Sequence[Measure], now: Situation) -> str:
    facts = [_change(values, now)] if values else [f"{now.games:,} games in {span(now.active_s)}"]
    elo = now.trends.get("elo", ())
    if elo and now.anchored and now.first != "elo" and elo[-1].text != TOO_FEW:
        facts.append(f"{elo[-1].value:+.0f} Elo against {ANCHOR}")
    if now.eta_s is not None and now.state is RunState.RUNNING:
        facts.append(f"{span(now.eta_s)} left")
    return f"{verdict}: {'; '.join(facts)}"


def _change(values: Sequence[Measure], now: Situation) -> str:
    first, last = (measure.text.partition(" ±")[0] for measure in (values[0], values[-1]))
    change = f"{values[0].name} {first}" + (f" → {last}" if len(values) > 1 else f" at v{values[0].version}")
    return f"{change} in {span(now.active_s)}"
