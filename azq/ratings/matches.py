"""A match in parts: as it is handed out to several workers, and as it is read, together with what was played of it so far. Pure.

The same games are played, however many parts there are, by any worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from msgspec.structs import asdict, replace

from azq.stats import SequentialTest, sequential_test
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchResult, MatchSpec
from azq.wire.parts import each_once, opponents, spec_of, together, whole_of

EVAL_PRIORITY = 3  # before self-play, whose jobs have 6


class WholeMatch(MatchResult, frozen=True):
    """A match as far as it was played, all parts together; `spec.games` are those that it should have."""

    parts: tuple[MatchResult, ...] = ()  # in the order in which they came
    test: SequentialTest | None = None  # as of the part that decided it, else as of the last one

    @property
    def workers(self) -> dict[str, int]:
        """Games of each worker, as far as it is known who played them."""
        played: Counter[str] = Counter()
        for part in self.parts:
            played.update({part.worker: part.games} if part.worker else {})
        return dict(played)

    @property
    def progress(self) -> str:
        """What it has come to: `412 of 1000, LLR 1.20 in [-2.94, 2.94]`; empty for a match that is over and was to be played to its end."""
        done = "" if self.games >= self.spec.games or not self.spec.of_games else f"{self.games} of {self.spec.games}"
        if self.test is None:
            return done
        llr = f"LLR {self.test.llr:.2f} in [{self.test.lower:.2f}, {self.test.upper:.2f}]"
        return ", ".join(filter(None, (done, llr if self.test.verdict == "open" else f"{llr}: {self.test.verdict}")))


def split(spec: MatchSpec, most_games: int) -> list[MatchSpec]:
    """The match in parts of about the same size, at most so many games; as it is where one part does."""
    if spec.games <= most_games:
        return [spec]
    count = -(-spec.games // most_games)
    places = [number * spec.games // count for number in range(count + 1)]
    return [replace(spec, games=end - first, first_game=first, of_games=spec.games) for first, end in pairwise(places)]


def job_of(run: str, tag: str, spec: MatchSpec | GradeSpec) -> Job:
    """The job, not yet the ledger's, that plays a match or a part of one, or grades."""
    games = spec.games if isinstance(spec, MatchSpec) else 0
    return Job("", run, Kind.EVAL, tag, priority=EVAL_PRIORITY, games=games, payload=encode(spec))


def part_of(job: Job) -> MatchSpec | None:
    """The part of a match that a job is; None for every other job."""
    spec = spec_of(job)
    return spec if isinstance(spec, MatchSpec) and spec.of_games else None


def is_trial(job: Job) -> bool:
    """Whether a job is a match of a candidate for promotion against the best."""
    spec = spec_of(job)
    return isinstance(spec, MatchSpec) and spec.trial


def put_together(results: Iterable[MatchResult]) -> list[WholeMatch]:
    """Matches, each once; both come newest first, a match where its newest part is."""
    matches: dict[object, list[MatchResult]] = {}
    for number, result in enumerate(results):
        key = (whole_of(result.spec), result.first, result.second) if result.spec.of_games else number
        matches.setdefault(key, []).append(result)
    return [_together(parts[::-1]) for parts in matches.values()]


def _together(came: Sequence[MatchResult]) -> WholeMatch:
    parts = each_once(came)
    return WholeMatch(**asdict(together(parts)), parts=parts, test=_test([part for part in parts if part.games]))


def _test(played: Sequence[MatchResult]) -> SequentialTest | None:
    """Looked at after each part, as Wald's bounds want it: what came after the decision does not undo it."""
    if not played or not played[0].spec.sprt:
        return None
    elo0, elo1, alpha, beta = played[0].spec.sprt
    counts = accumulate(
        ((part.wins, part.draws, part.losses) for part in played),
        lambda sums, part: (sums[0] + part[0], sums[1] + part[1], sums[2] + part[2]),
    )
    tests = [sequential_test(*count, elo0, elo1, alpha, beta, seats=1 + opponents(played[0])) for count in counts]
    return next((test for test in tests if test.verdict != "open"), tests[-1])
