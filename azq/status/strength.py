"""How well a run plays, in the measure that its game has, and how it does, in one sentence made of facts. Pure.

One table says which measure; what does not apply to a game is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from operator import itemgetter
from typing import Any, Literal

import msgspec

from azq.ledger.records import known_section
from azq.ledger.types import RunState, RunView
from azq.ratings.elo import ANCHOR, Rating, Scored, version_of, versions_of
from azq.ratings.matches import WholeMatch
from azq.ratings.outliers import Outlier
from azq.stats import wilson
from azq.wire.messages import GradeResult, RunRecord

Kind = Literal["errors", "loss", "score", "points", "share", "elo"]

#: what each game is judged by first; others by Elo, and by errors where there are graded positions
HEADLINES: dict[str, Kind] = {
    "tic_tac_toe": "errors",
    "connect_four": "errors",
    "backgammon": "loss",
    "blob": "points",
    "beasty_bar": "share",
    "2048": "score",
}
NAMES: Mapping[str, str] = {
    "errors": "graded errors",  # share of graded moves that lose a result class
    "loss": "equity loss",  # of a graded turn, in thousandths of a point
    "score": "score",
    "points": "points a game",
    "share": "first places",
    "elo": "Elo",
}
TEXTS: Mapping[str, str] = {
    "errors": "{:.1%}",
    "loss": "{:.1f}",
    "score": "{:,.0f}",
    "points": "{:+.2f}",
    "share": "{:.0%}",
    "elo": "{:+.0f}",
}
LESS_IS_BETTER: tuple[Kind, ...] = ("errors", "loss")
KINDS: tuple[Kind, ...] = ("errors", "loss", "score", "points", "share", "elo")
#: games in which a graded move cannot lose a result class: none is certain
WITHOUT_ERRORS = ("backgammon", "blob", "beasty_bar", "2048")


class _Named(msgspec.Struct):
    game: str = ""


def game_of(record: RunRecord) -> str:
    """The name of the game that a run is about."""
    return known_section(record, "run", _Named).game


MILLI = 1000.0
WIDEST_ELO = 400.0  # half an interval beyond which a rating says nothing yet
TOO_FEW = "too few games"


@dataclass(frozen=True, slots=True)
class Measure:
    """One way to tell how well the newest evaluated weights play; `low` and `high` bound its 95 % interval where it has one."""

    kind: Kind
    name: str
    text: str  # as people read it, `too few games` where the interval is too wide, a dash where nothing is known
    value: float | None = None
    low: float | None = None
    high: float | None = None
    version: int | None = None
    against: str = ""  # the opponent, where it is about one


@dataclass(frozen=True, slots=True)
class Strength:
    """How well the newest evaluated weights play; None where nothing was measured yet, or the measure does not apply to the game."""

    graded_version: int | None = None
    error_share: float | None = None  # of graded moves that lose a result class
    graded_positions: int = 0
    rated_version: int | None = None
    elo: float | None = None
    elo_low: float | None = None
    elo_high: float | None = None
    score: float | None = None  # mean, in a game for one
    score_low: float | None = None
    score_high: float | None = None
    baseline: str = ""  # of the players that never change, the one with the best score
    baseline_score: float | None = None
    marks: str = ""  # of each of the game's positions, as digits of `GradeResult.marks`
    loss: float | None = None  # mean of graded moves, in the unit of the graded values, where that is what the game is graded by


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest matches and grades of one run, newest first, with ratings by the matches, or scores in a game for one."""

    matches: Sequence[WholeMatch] = ()
    grades: Sequence[GradeResult] = ()
    ratings: Sequence[Rating] = ()
    strangers: Sequence[Outlier] = ()  # workers whose results differ from the others' by more than chance
    scores: Sequence[Scored] = ()


UNRATED = Standing()


def strength(run: Standing, game: str = "") -> Strength:
    """The newest grade and the rating, or in a game for one the score, of the highest weight version."""
    grade = next((grade for grade in run.grades if grade.positions), None)
    rated, scored = _newest(run.ratings), _newest(run.scores)
    baseline = next((score for score in run.scores if not versions_of(score.player)), None)
    rated = rated if rated and rated.high > rated.low else None  # it met only itself
    return Strength(
        graded_version=grade.weight_version if grade else None,
        error_share=grade.errors / grade.positions if grade and game not in WITHOUT_ERRORS else None,
        graded_positions=grade.positions if grade else 0,
        rated_version=version_of((rated or scored).player) if rated or scored else None,
        elo=rated.elo if rated else None,
        elo_low=rated.low if rated else None,
        elo_high=rated.high if rated else None,
        **({"score": scored.score, "score_low": scored.low, "score_high": scored.high} if scored else {}),
        baseline=baseline.player if baseline else "",
        baseline_score=baseline.score if baseline else None,
        marks="".join(map(str, grade.marks)) if grade else "",
        loss=grade.mean_loss if grade and HEADLINES.get(game) == "loss" else None,
    )


Trends = Mapping[Kind, Sequence[Measure]]


def trends(game: str, run: Standing) -> Trends:
    """Each measure that is known of a run, version by version, the oldest first."""
    graded, versus = most_positions(run.grades), against_fixed(game, run.matches)
    by_kind: dict[Kind, list[Measure]] = {
        "errors": [] if game in WITHOUT_ERRORS else [_errors(grade) for grade in graded],
        "loss": [_loss(grade) for grade in graded] if HEADLINES.get(game) == "loss" else [],
        "score": [_score(score) for score in run.scores],
        "elo": [_elo(rating) for rating in run.ratings if rating.high > rating.low],  # else only itself was met
    }
    if versus:
        by_kind[versus[0].kind] = versus
    placed = {kind: [(version, measure) for measure in by_kind.get(kind, ()) if (version := measure.version)] for kind in KINDS}
    return {kind: [measure for _, measure in sorted(values, key=itemgetter(0))] for kind, values in placed.items() if values}


def headline_kind(game: str, trends: Trends) -> Kind:
    """What a game is judged by first."""
    if game in HEADLINES:
        return HEADLINES[game]
    return "errors" if "errors" in trends else "score" if "score" in trends else "elo"


def measures(game: str, trends: Trends) -> tuple[Measure, ...]:
    """What the game is judged by, whether it is known yet or not, then the other measures that are known, of the newest version."""
    first, newest = headline_kind(game, trends), {kind: values[-1] for kind, values in trends.items()}
    return (newest.pop(first) if first in newest else Measure(first, NAMES[first], "–"), *newest.values())


def most_positions(grades: Sequence[GradeResult]) -> list[GradeResult]:
    """Of each version the result on most positions."""
    best: dict[int, GradeResult] = {}
    for grade in grades:
        if grade.positions > (best[grade.weight_version].positions if grade.weight_version in best else 0):
            best[grade.weight_version] = grade
    return list(best.values())


def _errors(grade: GradeResult) -> Measure:
    share = grade.errors / grade.positions
    return Measure("errors", NAMES["errors"], f"{share:.1%}", share, *wilson(grade.errors, grade.positions), grade.weight_version)


def _loss(grade: GradeResult) -> Measure:
    loss = MILLI * grade.mean_loss
    return Measure("loss", NAMES["loss"], f"{loss:.1f} millipoints", loss, version=grade.weight_version)


def _score(scored: Scored) -> Measure:
    text = f"{scored.score:,.0f} ±{(scored.high - scored.low) / 2:,.0f}"
    return Measure("score", NAMES["score"], text, scored.score, scored.low, scored.high, version_of(scored.player))


def _elo(rating: Rating) -> Measure:
    half = (rating.high - rating.low) / 2
    text = TOO_FEW if half > WIDEST_ELO else f"{rating.elo:+.0f} ±{half:.0f}"
    return Measure("elo", NAMES["elo"], text, rating.elo, rating.low, rating.high, version_of(rating.player))


def against_fixed(game: str, matches: Sequence[WholeMatch]) -> list[Measure]:
    """Points or first places of each version, the newest first, against the opponent that never changes and is the newest's hardest."""
    kind = HEADLINES.get(game)
    if kind not in ("points", "share"):
        return []
    met = [match for match in matches if match.games and version_of(match.first) is not None and not versions_of(match.second)]
    newest = max((version_of(match.first) or 0 for match in met), default=0)
    hardest = min((match for match in met if version_of(match.first) == newest), default=None, key=lambda match: match.score)
    played = {version_of(match.first) or 0: match for match in reversed(met) if hardest and match.second == hardest.second}
    return [_against(kind, version, played[version]) for version in sorted(played, reverse=True)]


def _against(kind: Literal["points", "share"], version: int, match: WholeMatch) -> Measure:
    if kind == "share":
        value, half = match.score, 1.96 * (match.score * (1 - match.score) / match.games) ** 0.5
        text = f"{value:.0%} ±{half:.0%} against {match.second}"
    else:
        value, half = match.points, 1.96 * match.points_se
        text = f"{value:+.2f} ±{half:.2f} against {match.second}"
    return Measure(kind, NAMES[kind], text, value, value - half, value + half, version, match.second)


def _newest(rows: Sequence[Any]) -> Any:
    return max((row for row in rows if version_of(row.player) is not None), default=None, key=lambda row: version_of(row.player) or 0)


STANDING_STILL_S = 900.0  # after which a measure that did not move is worth a word
CLEAR = 0.1  # of a measure without an interval
FEWEST_TO_JUDGE = 4  # values of which the last half says whether a run still improves


@dataclass(frozen=True, slots=True)
class Situation:
    """What the sentence is made of."""

    run: str
    state: RunState
    active_s: float
    first: Kind  # what the game is judged by
    trends: Trends = field(default_factory=dict)
    games: int = 0
    step: int = 0
    anchored: bool = False  # whether a match was played with the player whose Elo is 0
    eta_s: float | None = None
    trouble: str = ""  # why there is nothing to learn from, or who dies again and again


def situation_of(view: RunView, standing: Standing, values: Trends, games: int, step: int, **more: Any) -> Situation:
    """Of a run as it is recorded, with its `trends`, and with more that is known of one at work."""
    first = headline_kind(game_of(view.record), values)
    anchored = any(rating.player == ANCHOR for rating in standing.ratings)
    return Situation(view.record.run, view.state, view.active_ms / 1000, first, values, games, step, anchored, **more)


def headline(now: Situation) -> str:
    """The verdict with the first and the newest value of the game's measure, the Elo and the time left, or at the end the last half."""
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
    change = _gain(values, now.first)
    if change > 0 or (change == 0 and len(elo) > 1 and _gain(elo, "elo") > 0):
        return "Learning well"
    if change == 0 and now.active_s < STANDING_STILL_S:
        return "Training, no clear change yet"
    return f"{'Getting worse' if change < 0 else 'Standing still'} (`azq why {now.run}` looks for the cause)"


def _gain(values: Sequence[Measure], kind: Kind) -> int:
    """1 where the newest value is better than the first, -1 where it is worse; 0 within the 95 % interval of the difference."""
    first, last = values[0], values[-1]
    if first.value is None or last.value is None:
        return 0
    change = (last.value - first.value) * (-1 if kind in LESS_IS_BETTER else 1)
    if first.low is None or first.high is None or last.low is None or last.high is None:
        noise = CLEAR * abs(first.value)
    else:
        noise = hypot((first.high - first.low) / 2, (last.high - last.low) / 2)
    return (change > noise) - (change < -noise)


def _joined(verdict: str, values: Sequence[Measure], now: Situation) -> str:
    facts = [_change(values, now)] if values else [f"{now.games:,} games in {span(now.active_s)}"]
    elo = now.trends.get("elo", ())
    if elo and now.anchored and now.first != "elo" and elo[-1].text != TOO_FEW:
        facts.append(f"{elo[-1].value:+.0f} Elo against {ANCHOR}")
    if now.state is not RunState.RUNNING and len(values) >= FEWEST_TO_JUDGE:
        half = values[(len(values) - 1) // 2 :]
        facts.append(f"{('no clear change', 'still improving', 'worse')[_gain(half, now.first)]} since v{half[0].version}")
    elif now.eta_s is not None and now.state is RunState.RUNNING:
        facts.append(f"{span(now.eta_s)} left")
    return f"{verdict}: {'; '.join(facts)}"


def _change(values: Sequence[Measure], now: Situation) -> str:
    first, last = (measure.text.partition(" ±")[0] for measure in (values[0], values[-1]))
    change = f"{values[0].name} {first}" + (f" → {last}" if len(values) > 1 else f" at v{values[0].version}")
    return f"{change} in {span(now.active_s)}"
