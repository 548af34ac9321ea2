"""Results of a run's evaluations and the ratings they give, worked out once for each new result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from azq.arena.rating import Rating, rate
from azq.wire.messages import GradeResult, MatchResult

Results = tuple[list[MatchResult], list[GradeResult]]


@dataclass(frozen=True, slots=True)
class Standing:
    """The newest matches and grades of one run, newest first, with the ratings of the matches."""

    matches: tuple[MatchResult, ...] = ()
    grades: tuple[GradeResult, ...] = ()
    ratings: tuple[Rating, ...] = ()


class Standings:
    """What was worked out of each run's results, by the id of the newest one; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Standing]] = {}

    def of(self, run: str, newest_id: str, read: Callable[[], Results]) -> Standing:
        """The standing as of a result; `read` fetches the results where it is not known yet."""
        with self._lock:
            known_id, standing = self._known.get(run, ("", Standing()))
        if known_id == newest_id:
            return standing
        matches, grades = read()
        standing = Standing(tuple(matches), tuple(grades), tuple(rate(matches)))
        with self._lock:
            self._known[run] = (newest_id, standing)
        return standing
