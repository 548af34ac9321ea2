"""How a run does, in one sentence made of facts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    known: Trends = field(default_factory=dict)
    eta_s: float | None = None
    games: int = 0
    step: int = 0
    trouble: str = ""  # why there is nothing to learn from, or who dies again and again


def headline(now: Situation) -> str:
    """The verdict with the first and the newest value of the game's measure, the Elo and the time left."""
    values = now.known.get(now.first, ())
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
    for size, unit in ((172_800, "d"), (7_200, "h"), (120, "min")):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def _verdict(values: Sequence[Measure], now: Situation) -> str:
    first, last = values[0], values[-1]
    better = _clearly(first, last) if now.first in LESS_IS_BETTER else _clearly(last, first)
    worse = _clearly(last, first) if now.first in LESS_IS_BETTER else _clearly(first, last)
    if better:
        return "Learning well"
    if not worse and now.active_s < STANDING_STILL_S:
        return "Training, no clear change yet"
    return f"{'Getting worse' if worse else 'Standing still'} (`azq why {now.run}` looks for the cause)"


def _clearly(larger: Measure, smaller: Measure) -> bool:
    """Whether one value is above the other, intervals and all."""
    if larger.value is None or smaller.value is None:
        return False
    if larger.low is not None and smaller.high is not None:
        return larger.low > smaller.high
    return larger.value - smaller.value > CLEAR * abs(larger.value)


def _joined(verdict: str, values: Sequence[Measure], now: Situation) -> str:
    facts = [_change(values, now)] if values else [f"{now.games:,} games in {span(now.active_s)}"]
    elo = now.known.get("elo", ())
    if elo and now.first != "elo" and elo[-1].text != TOO_FEW:
        facts.append(f"{elo[-1].value:+.0f} Elo against {ANCHOR}")
    if now.eta_s is not None and now.state is RunState.RUNNING:
        facts.append(f"{span(now.eta_s)} left")
    return f"{verdict}: {'; '.join(facts)}"


def _change(values: Sequence[Measure], now: Situation) -> str:
    first, last = (measure.text.partition(" ±")[0] for measure in (values[0], values[-1]))
    change = f"{values[0].name} {first}" + (f" → {last}" if len(values) > 1 else f" at v{values[0].version}")
    return f"{change} in {span(now.active_s)}"
