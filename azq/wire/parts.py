"""The parts of a match as one result. Pure.

The parts of a match have the games that they would have in the whole one. Each is committed once by its job's lease; one that lies there
twice all the same counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from azq.errors import WireError
from azq.wire.codec import decode_either
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchResult, MatchSpec


def spec_of(job: Job) -> MatchSpec | GradeSpec | None:
    """What an evaluation job is about; None for every other job."""
    if job.kind == Kind.EVAL:
        with suppress(WireError):
            return decode_either(job.payload, MatchSpec, GradeSpec)
    return None


def whole_of(spec: MatchSpec) -> MatchSpec:
    """The whole match that a part belongs to; a match without parts stays what it is."""
    return replace(spec, games=spec.of_games, first_game=0) if spec.of_games else spec


def opponents(match: MatchResult) -> int:
    """The second player's seats; in a game for one the two play side by side."""
    return max(1, match.seats - 1)


def each_once(came: Iterable[MatchResult]) -> tuple[MatchResult, ...]:
    """Parts of one match, oldest first: of those that lie there twice the first that was played, or the first."""
    once: dict[int, MatchResult] = {}
    for part in came:
        if not (before := once.get(part.spec.first_game)) or (part.games and not before.games):
            once[part.spec.first_game] = part
    return tuple(once.values())


def together(parts: Sequence[MatchResult]) -> MatchResult:
    """The result of all games of these parts of one match, as if it had been played as one; of the newest time, and of no single worker."""
    newest, played = max(parts, key=lambda part: part.finished_ms), [part for part in parts if part.games]
    if len(parts) == 1:
        return replace(newest, spec=whole_of(newest.spec))
    games = max(1, sum(part.games for part in played))
    sums = {name: sum(getattr(part, name) for part in played) for name in ("wins", "draws", "losses")}
    means = {name: sum(getattr(part, name) * part.games for part in played) / games for name in ("share", "points", "second_points")}
    return replace(
        newest,
        spec=whole_of(newest.spec),
        **sums,
        **means,
        seats=max(part.seats for part in parts),
        points_se=_error(played, lambda part: (part.points, part.points_se), means["points"]),
        second_points_se=_error(played, lambda part: (part.second_points, part.second_points_se), means["second_points"]),
        gap_se=_error(played, lambda part: (part.points - part.second_points, part.gap_se), means["points"] - means["second_points"]),
        error=next((part.error for part in parts if part.error), ""),
        worker="",
    )


def _error(played: Sequence[MatchResult], of: Callable[[MatchResult], tuple[float, float]], mean: float) -> float:
    """The standard error of a mean over all groups of games, from each part's own mean and error; 0 where there is but one group."""
    squares, groups = 0.0, 0
    for part in played:
        count, (part_mean, error) = part.games // part.seats, of(part)
        squares += error**2 * count * (count - 1) + count * (part_mean - mean) ** 2
        groups += count
    return math.sqrt(squares / (groups - 1) / groups) if groups > 1 else 0.0
