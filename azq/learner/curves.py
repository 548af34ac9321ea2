"""The arena's results as curves beside those of training: arena/elo, grade_error, grade_loss, score_<opponent>, points_<opponent>."""

from __future__ import annotations

import contextlib
import math

from azq.bus.base import Bus
from azq.errors import WireError
from azq.wire import keys
from azq.wire.codec import decode_either
from azq.wire.messages import GradeResult, MatchResult, MatchSpec
from azq.wire.parts import each_once, together, whole_of

MATCHES_AT_ONCE = 64  # of which parts are awaited; older ones are over


def elo_difference(wins: int, draws: int, losses: int) -> float:
    """Elo points between two players by the logistic model; half a game is added to each side so that no score is infinite."""
    score = (wins + draws / 2 + 0.5) / (wins + draws + losses + 1)
    return 400.0 * math.log10(score / (1.0 - score))


def match_curves(result: MatchResult) -> dict[str, float]:
    """Tags of a match of the run's weights, none where an engine ended it; `arena/elo` is counted from the pure UCT opponent."""
    if not result.games:
        return {}
    opponent = "".join(letter if letter.isalnum() or letter in "_.-" else "_" for letter in result.spec.second)
    curves = {f"arena/score_{opponent}": result.score, f"arena/points_{opponent}": result.points}
    if result.second.startswith("uct:") and result.seats == 2:
        curves["arena/elo"] = elo_difference(result.wins, result.draws, result.losses)
    return curves


class ResultCurves:
    """Follows the run's results stream; each result is given once."""

    def __init__(self) -> None:
        self._last_id = "0"
        self._parts: dict[MatchSpec, list[MatchResult]] = {}  # of matches that several workers play

    def read(self, bus: Bus, run: str) -> dict[str, float]:
        """Curves of the results that came since the last call, the newest of each tag."""
        curves: dict[str, float] = {}
        for entry in bus.after(keys.results(run), self._last_id):
            self._last_id = entry.id
            with contextlib.suppress(WireError):  # its readers in the daemon report it
                curves |= _curves(self._as_far(decode_either(entry.frame, MatchResult, GradeResult)))
        return curves

    def _as_far(self, result: MatchResult | GradeResult) -> MatchResult | GradeResult:
        """With a part, the match that it belongs to, as far as it was played."""
        if isinstance(result, GradeResult) or not result.spec.of_games:
            return result
        parts = self._parts.setdefault(whole_of(result.spec), [])
        parts.append(result)
        if len(self._parts) > MATCHES_AT_ONCE:
            del self._parts[next(iter(self._parts))]
        return together(each_once(parts))


def _curves(result: MatchResult | GradeResult) -> dict[str, float]:
    if isinstance(result, MatchResult):
        return match_curves(result)
    return {"arena/grade_error": result.errors / max(1, result.positions), "arena/grade_loss": result.mean_loss}
