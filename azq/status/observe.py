"""Reads the control plane: everything that the daemon decides by and that a run's status shows. A thin shell over ledger and bus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import redis

from azq import logs
from azq.arena.rating import Rating, rate
from azq.bus.base import Bus, Entry
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.errors import ConfigError, WireError
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import RunLook, RunView
from azq.status.queues import QueueStatus, condense, note_full, queue_table
from azq.status.state import Desired, DesiredRun, Observed, ObservedRun
from azq.status.summary import RunFacts, RunStatus, summarise
from azq.status.workers import WorkerStatus, Workforce, joined, team_of, worker_status
from azq.wire import keys
from azq.wire.codec import decode, decode_either, skip_unreadable
from azq.wire.messages import EvalRound, GradeResult, Heartbeat, LearnerStatus, MatchResult, Message, WeightEvent

log = logs.get(__name__)

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
        self._known: dict[str, tuple[str, Standing]] = {}

    def of(self, run: str, newest_id: str, read: Callable[[], Results]) -> Standing:
        """The standing as of a result; `read` fetches the results where it is not known yet."""
        known_id, standing = self._known.get(run, ("", Standing()))
        if known_id != newest_id:  # two threads that look at once read the same results
            matches, grades = read()
            standing = Standing(tuple(matches), tuple(grades), tuple(rate(matches)))
            self._known[run] = (newest_id, standing)
        return standing


class Beats:
    """The newest heartbeats of all live processes, by role and name; safe to share between threads.

    `read` is content with what is younger than `max_age_s`; `refresh` always looks. A heartbeat is decoded when it changed; one
    that does not decode (another azq version) is left out and said once.
    """

    def __init__(self, bus: Bus, *, max_age_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._bus = bus
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[bytes, Heartbeat | None]] = {}
        self._beats: tuple[Heartbeat, ...] = ()
        self._teams: dict[str, Workforce] = {}
        self._shared: Workforce | None = None
        self._read_s = float("-inf")

    def read(self) -> tuple[Heartbeat, ...]:
        """The live processes as of at most `max_age_s` ago. Raises `BrokerError`."""
        with self._lock:
            return self._beats if self._clock() - self._read_s < self._max_age_s else self._look()

    def refresh(self) -> tuple[Heartbeat, ...]:
        """The live processes now. Raises `BrokerError`."""
        with self._lock:
            return self._look()

    def team(self, run: str, now_ms: int) -> Workforce:
        """The workers of a run as of `read`; put together once for all who ask before the next look. Raises `BrokerError`."""
        self.read()
        with self._lock:
            status = partial(worker_status, now_ms=now_ms)
            if self._shared is None:
                self._shared = team_of([beat for beat in self._beats if not beat.run], status)
            if run not in self._teams:
                self._teams[run] = joined(self._shared, [beat for beat in self._beats if beat.run == run], status)
            return self._teams[run]

    def _look(self) -> tuple[Heartbeat, ...]:
        found = self._bus.values(keys.BEAT_PREFIX)
        self._known = {key: self._decoded(key, frame) for key, frame in found.items()}
        beats = (beat for _, beat in self._known.values() if beat is not None)
        self._beats, self._read_s = tuple(sorted(beats, key=lambda beat: (beat.role, beat.worker))), self._clock()
        self._teams, self._shared = {}, None
        return self._beats

    def _decoded(self, key: str, frame: bytes) -> tuple[bytes, Heartbeat | None]:
        before = self._known.get(key)
        if before is not None and before[0] == frame:
            return before
        try:
            return frame, decode(frame, Heartbeat)
        except WireError as error:
            if before is None or before[1] is not None:
                log.warning("unreadable", place=key, reason=str(error))
            return frame, None


RESULTS_READ = 600  # newest results that a rating looks at; its cost grows with the cube of the versions among them

M = TypeVar("M", bound=Message)


def read_workers(bus: Bus) -> tuple[Heartbeat, ...]:
    """The live processes, by role and name."""
    return Beats(bus).read()


def read_weights(bus: Bus, run: str, count: int = 1) -> list[WeightEvent]:
    """The newest weight events, newest first."""
    return [event for entry in bus.newest(keys.weights(run), count) if (event := _decode_entry(entry, WeightEvent)) is not None]


def read_round(bus: Bus, run: str) -> EvalRound | None:
    """The newest evaluation round that was asked for."""
    return _decode(bus.get(keys.eval_round(run)), EvalRound, keys.eval_round(run))


def read_results(bus: Bus, run: str, count: int = RESULTS_READ) -> Results:
    """The newest matches and grades, newest first."""
    return split_results(bus.newest(keys.results(run), count))


def split_results(entries: Sequence[Entry]) -> Results:
    """Matches and grades among entries of a results stream, in their order."""
    matches: list[MatchResult] = []
    grades: list[GradeResult] = []
    for entry in entries:
        with skip_unreadable(entry.place):
            result = decode_either(entry.frame, MatchResult, GradeResult)
            if isinstance(result, MatchResult):
                matches.append(result)
            else:
                grades.append(result)
    return matches, grades


def read_standing(bus: Bus, run: str, standings: Standings) -> Standing:
    """The newest results and their ratings, worked out anew only where there is a newer result."""
    (result,) = bus.newest_each([keys.results(run)])
    return standings.of(run, result.id if result else "", lambda: read_results(bus, run))


def gather(
    ledger: Ledger, bus: Bus, run: str, workers: tuple[Heartbeat, ...] | None = None, standings: Standings | None = None
) -> RunFacts:
    """Everything the status of one run is made of; `NotFound` names the runs there are."""
    look, standings = ledger.look_at(run), standings or Standings()
    newest, result = bus.newest_each([keys.weights(run), keys.results(run)])
    standing = standings.of(run, result.id if result else "", lambda: read_results(bus, run))
    return RunFacts(
        view=look.view,
        counts=look.counts,
        jobs=look.jobs,
        learner=_decode(bus.get(keys.learner_status(run)), LearnerStatus, keys.learner_status(run)),
        weights=_decode_entry(newest, WeightEvent),
        matches=standing.matches,
        grades=standing.grades,
        ratings=standing.ratings,
        workers=read_workers(bus) if workers is None else workers,
    )


class Observer:
    """Looks at everything in a few round trips, however many runs and workers there are, and remembers what did not change."""

    def __init__(self, ledger: Ledger, bus: Bus, beats: Beats) -> None:
        self._ledger = ledger
        self._bus = bus
        self.beats = beats
        self._full_ms: dict[str, int] = {}

    def look(self, now_ms: int) -> tuple[Desired, Observed]:
        """What is wanted and what is there. Raises `BrokerError`."""
        looks = self._ledger.look()
        workers = self.beats.refresh()
        names = [look.view.record.run for look in looks]
        learners = self._bus.get_each([keys.learner_status(name) for name in names])
        rounds = self._bus.get_each([keys.eval_round(name) for name in names])
        weights = self._bus.newest_each([keys.weights(name) for name in names])
        runs = {
            name: _observed(look, learner, latest, newest)
            for name, look, learner, latest, newest in zip(names, looks, learners, rounds, weights, strict=True)
        }
        self._full_ms = note_full(self._full_ms, condense(workers), [view for look in looks for view in look.jobs], now_ms)
        return Desired(tuple(_desired(look.view) for look in looks)), Observed(workers, runs, self._full_ms)


def _desired(view: RunView) -> DesiredRun:
    record = view.record
    try:
        return DesiredRun(record.run, view.state, sections_of(record), record.until, view.changed_ms)
    except ConfigError as error:
        return DesiredRun(record.run, view.state, None, record.until, view.changed_ms, unreadable=str(error))


def _observed(look: RunLook, learner: bytes | None, latest: bytes | None, newest: Entry | None) -> ObservedRun:
    name = look.view.record.run
    weights = _decode_entry(newest, WeightEvent)
    asked = _decode(latest, EvalRound, keys.eval_round(name))
    return ObservedRun(
        counts=look.counts,
        active_ms=look.view.active_ms,
        jobs=look.jobs,
        ended=look.ended,
        learner=_decode(learner, LearnerStatus, keys.learner_status(name)),
        weight_version=weights.version if weights else 0,
        round_version=asked.weight_version if asked else 0,
        round_ms=asked.asked_ms if asked else 0,
        weight_step=weights.step if weights else 0,
        round_step=asked.step if asked else 0,
    )


def _decode(frame: bytes | None, kind: type[M], place: str) -> M | None:
    """None also where there is no frame."""
    with skip_unreadable(place):
        return decode(frame, kind) if frame else None
    return None


def _decode_entry(entry: Entry | None, kind: type[M]) -> M | None:
    return _decode(entry.frame, kind, entry.place) if entry else None


class Watch:
    """Summaries of runs, read afresh at each call."""

    def __init__(self, client: redis.Redis) -> None:
        self.bus = RedisBus(client)
        self._ledger = Ledger(client)

    def summary(self, run: str) -> RunStatus:
        """Everything the live table shows of one run; `NotFound` names the runs there are."""
        return summarise(gather(self._ledger, self.bus, run), now_ms())

    def everything(self) -> tuple[tuple[RunStatus, ...], tuple[QueueStatus, ...], tuple[WorkerStatus, ...]]:
        """All runs, queues and processes."""
        workers = read_workers(self.bus)
        facts = [gather(self._ledger, self.bus, view.record.run, workers) for view in self._ledger.runs()]
        looked_ms = now_ms()
        runs = tuple(summarise(one, looked_ms) for one in facts)
        queues = queue_table(workers, [job for one in facts for job in one.jobs], looked_ms)
        return runs, tuple(queues), tuple(worker_status(beat, looked_ms) for beat in workers)
