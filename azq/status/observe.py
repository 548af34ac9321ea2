"""Reads the control plane: everything that the daemon decides by and that a run's status shows. A thin shell over ledger and bus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import redis

from azq import logs
from azq.bus.base import Bus, Entry
from azq.bus.promotions import Promotions
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.errors import ConfigError, WireError
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.ledger.types import JobState, JobView, RunSnapshot, RunView
from azq.ratings.elo import rate, score_table
from azq.ratings.matches import WholeMatch, part_of, put_together
from azq.ratings.outliers import outliers
from azq.status.conditions import last_failure, read_deaths, read_mended
from azq.status.history import FirstsOfRuns
from azq.status.spending import read_spending
from azq.status.state import NO_ROUND, Desired, DesiredRun, Observed, ObservedRun, Sent
from azq.status.strength import Standing
from azq.status.summary import RunFacts, RunStatus, summarise
from azq.status.workers import QueueStatus, WorkerStatus, Workforce, joined, note_full, note_sent, queue_table, team_of, worker_status
from azq.wire import keys
from azq.wire.codec import decode, decode_either, skip_unreadable
from azq.wire.messages import EvalRound, GradeResult, Heartbeat, HistoryPoint, LearnerStatus, MatchResult, MatchSpec, Message, WeightEvent
from azq.wire.parts import whole_of

log = logs.get(__name__)

Results = tuple[list[WholeMatch], list[GradeResult]]


class Standings:
    """What was worked out of each run's results, by the id of the newest one; safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Standing]] = {}

    def of(self, run: str, newest_id: str, read: Callable[[], Results]) -> Standing:
        """The standing as of a result; `read` fetches the results where it is not known yet."""
        known_id, standing = self._known.get(run, ("", Standing()))
        if known_id != newest_id:  # two threads that look at once read the same results
            matches, grades = read()
            standing = Standing(matches, grades, rate(matches), outliers(matches), score_table(matches))
            self._known[run] = (newest_id, standing)
        return standing


class Beats:
    """The newest heartbeats of all live processes, by role and name; safe to share between threads.

    `read` is content with what is younger than `max_age_s`; `refresh` always reads. A heartbeat is decoded when it changed; one
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
            return self._beats if self._clock() - self._read_s < self._max_age_s else self._refresh()

    def refresh(self) -> tuple[Heartbeat, ...]:
        """The live processes now. Raises `BrokerError`."""
        with self._lock:
            return self._refresh()

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

    def _refresh(self) -> tuple[Heartbeat, ...]:
        result = self._bus.values(keys.BEAT_PREFIX)
        self._known = {key: self._decoded(key, frame) for key, frame in result.items()}
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


LOOK_BACK = 16  # weight events; one that does not decode must not hide those before it
RESULTS_READ = 600  # newest results that a rating counts; its cost grows with the cube of the versions among them

M = TypeVar("M", bound=Message)


def read_workers(bus: Bus) -> tuple[Heartbeat, ...]:
    """The live processes, by role and name."""
    return Beats(bus).read()


def read_weights(bus: Bus, run: str, count: int = 1) -> list[WeightEvent]:
    """The newest weight events, newest first."""
    return [event for entry in bus.newest(keys.weights(run), count) if (event := _decode_entry(entry, WeightEvent)) is not None]


def read_promotions(bus: Bus, run: str) -> Promotions:
    """What became of a run's versions."""
    promotions = Promotions(bus, run)
    while promotions.refresh():
        pass
    return promotions


def first_weights(bus: Bus, run: str) -> int:
    """The first version there is; 0 before it."""
    first = next(iter(bus.after(keys.weights(run), "0", count=1)), None)
    return event.version if (event := _decode_entry(first, WeightEvent)) else 0


def serving_version(bus: Bus, run: str, *, gated: bool, promotions: Promotions | None = None) -> int:
    """The version that `LATEST` means, where versions are promoted (`gated`) or all serve; 0 before the first."""
    version = (promotions or read_promotions(bus, run)).version
    return version or (first_weights(bus, run) if gated else next((event.version for event in read_weights(bus, run, LOOK_BACK)), 0))


def read_round(bus: Bus, run: str) -> EvalRound | None:
    """The newest evaluation round that was asked for."""
    return _decode(bus.get(keys.eval_round(run)), EvalRound, keys.eval_round(run))


def read_results(bus: Bus, run: str) -> Results:
    """The newest matches and grades, newest first."""
    return split_results(bus.newest(keys.results(run), RESULTS_READ))


def split_results(entries: Sequence[Entry]) -> Results:
    """Matches and grades among entries of a results stream, newest first; a match that was played in parts once."""
    matches: list[MatchResult] = []
    grades: list[GradeResult] = []
    for entry in entries:
        with skip_unreadable(entry.place):
            result = decode_either(entry.frame, MatchResult, GradeResult)
            if isinstance(result, MatchResult):
                matches.append(result)
            else:
                grades.append(result)
    return put_together(matches), grades


def uncut(entries: Sequence[Entry], least: int) -> int:
    """How many entries of a results stream, newest first and at least so many, hold no match whose other parts come after them."""
    spans: dict[MatchSpec, tuple[int, int]] = {}  # first and last place of each match in parts, by the first
    for place, entry in enumerate(entries):
        with skip_unreadable(entry.place):
            result = decode_either(entry.frame, MatchResult, GradeResult)
            if isinstance(result, MatchResult) and result.spec.of_games:
                match = whole_of(result.spec)
                spans[match] = (spans.get(match, (place, place))[0], place)
    end = least
    for first, last in spans.values():
        end = max(end, last + 1) if first < end else end
    return end


def read_standing(bus: Bus, run: str, standings: Standings) -> Standing:
    """The newest results and their ratings, computed again only where there is a newer result."""
    (result,) = bus.newest_each([keys.results(run)])
    return standings.of(run, result.id if result else "", lambda: read_results(bus, run))


def gather(
    ledger: Ledger,
    bus: Bus,
    run: str,
    workers: tuple[Heartbeat, ...] | None = None,
    standings: Standings | None = None,
    firsts: FirstsOfRuns | None = None,
) -> RunFacts:
    """Everything the status of one run is made of; `NotFound` names the runs there are."""
    snapshot, standings = ledger.snapshot(run), standings or Standings()
    newest, result, point = bus.newest_each([keys.weights(run), keys.results(run), keys.history(run)])
    learner, learned, mended = bus.get_each([key(run) for key in (keys.learner_status, keys.learned, keys.mended)])
    standing = standings.of(run, result.id if result else "", lambda: read_results(bus, run))
    return RunFacts(
        view=snapshot.view,
        counts=snapshot.counts,
        jobs=snapshot.jobs,
        learner=_decode(learner, LearnerStatus, keys.learner_status(run)),
        learned=_decode(learned, LearnerStatus, keys.learned(run)),
        point=_decode_entry(point, HistoryPoint),
        weights=_decode_entry(newest, WeightEvent),
        serving=read_promotions(bus, run).version,
        standing=standing,
        workers=read_workers(bus) if workers is None else workers,
        spent=read_spending(bus, keys.cost(run)),
        firsts=(firsts or FirstsOfRuns()).of(bus, snapshot.view.record),
        deaths=read_deaths(bus),
        abandoned=ledger.abandon_reason(run) if snapshot.counts.abandoned and not snapshot.counts.finished else "",
        failed=last_failure(bus, run) if snapshot.counts.opened and not snapshot.counts.finished else "",
        mended=read_mended(mended),
    )


LONGEST_TURN_S = 2.0  # what an observer that was stopped, or without its broker, did not see does not count as waiting


class Observer:
    """Looks at everything in a few round trips, however many runs and workers there are, and remembers what did not change."""

    def __init__(self, ledger: Ledger, bus: Bus, beats: Beats, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._bus = bus
        self.beats = beats
        self._clock = clock
        self._looked_s = clock()
        self._clock_ms = 0
        self._full_ms: dict[str, int] = {}
        self._sent_ms: dict[Sent, int] = {}
        self._versions: dict[tuple[str, int], VersionLook] = {}  # of each run there is, by name and creation

    def observe(self) -> tuple[Desired, Observed]:
        """What is wanted and what is there. Raises `BrokerError`."""
        snapshots = self._ledger.snapshots()
        workers = self.beats.refresh()
        names = [snapshot.view.record.run for snapshot in snapshots]
        learners = self._bus.get_each([key(name) for name in names for key in (keys.learner_status, keys.learned)])
        rounds = self._bus.get_each([keys.eval_round(name) for name in names])
        newest = self._bus.newest_each([stream(name) for name in names for stream in VersionLook.STREAMS])
        desired = tuple(_desired(snapshot.view) for snapshot in snapshots)
        self._versions = {life: self._versions.get(life) or VersionLook(self._bus, life[0]) for life in map(_life, snapshots)}
        runs = {
            run.name: self._versions[_life(snapshot)].observed(run, _observed(snapshot, frames, latest), *heads)
            for run, snapshot, frames, latest, *heads in zip(
                desired, snapshots, zip(learners[::2], learners[1::2], strict=True), rounds, *(newest[i::3] for i in range(3)), strict=True
            )
        }
        self._turn(workers, [view for snapshot in snapshots for view in snapshot.jobs])
        return Desired(desired), Observed(workers, runs, self._full_ms, self._sent_ms, self._clock_ms)

    def _turn(self, workers: Sequence[Heartbeat], jobs: Sequence[JobView]) -> None:
        """Sets the clock on by the time since the look before, and notes what is judged by it."""
        before_s, self._looked_s = self._looked_s, self._clock()
        self._clock_ms += round(1000 * min(self._looked_s - before_s, LONGEST_TURN_S))
        self._full_ms = note_full(self._full_ms, workers, jobs, self._clock_ms)
        self._sent_ms = note_sent(self._sent_ms, jobs, self._clock_ms)


class VersionLook:
    """What is known of one run's versions, read again only where its streams went on."""

    STREAMS = (keys.weights, keys.promotions, keys.results)

    def __init__(self, bus: Bus, run: str) -> None:
        self._bus = bus
        self._run = run
        self._promotions = Promotions(bus, run)
        self._first = 0
        self._matches: tuple[str, tuple[WholeMatch, ...]] = "", ()  # as of a result

    def observed(
        self, run: DesiredRun, seen: ObservedRun, newest: Entry | None, promoted: Entry | None, result: Entry | None
    ) -> ObservedRun:
        """The run with what is known of its versions; the entries are the newest of their streams."""
        weights = _decode_entry(newest, WeightEvent)
        if self._promotions.last_id != (promoted.id if promoted else "0"):  # a broker may be restored, and know of fewer
            self._promotions = read_promotions(self._bus, self._run)
        gated = run.sections is not None and run.sections.arena.promotes
        if gated:
            self._first = self._first or first_weights(self._bus, self._run)
        if result and self._matches[0] != result.id and (gated or _tests(seen.jobs)):
            self._matches = result.id, tuple(read_results(self._bus, self._run)[0])
        return replace(
            seen,
            weight_version=weights.version if weights else 0,
            weight_step=weights.step if weights else 0,
            promotions=tuple(self._promotions.events),
            promotions_id=self._promotions.last_id,
            first_version=self._first,
            matches=self._matches[1],
        )


def _tests(jobs: Sequence[JobView]) -> bool:
    """Whether parts are queued that the sequential test of their match may make needless."""
    return any(view.state is JobState.QUEUED and (part := part_of(view.job)) and part.sprt for view in jobs)


def _life(run: RunSnapshot) -> tuple[str, int]:
    return run.view.record.run, run.view.record.created_ms


def _desired(view: RunView) -> DesiredRun:
    record, unreadable = view.record, ""
    try:
        sections = sections_of(record)
    except ConfigError as error:
        sections, unreadable = None, str(error)
    return DesiredRun(record.run, view.state, sections, record.until, view.changed_ms, view.changed_job, unreadable, view.reason)


def _observed(run: RunSnapshot, frames: tuple[bytes | None, bytes | None], latest: bytes | None) -> ObservedRun:
    name = run.view.record.run
    learner, learned = (_decode(frame, LearnerStatus, keys.learner_status(name)) for frame in frames)
    return ObservedRun(
        counts=run.counts,
        active_ms=run.view.active_ms,
        jobs=run.jobs,
        ended=run.ended,
        learner=learner,
        learned=learner or learned,
        round=_decode(latest, EvalRound, keys.eval_round(name)) or NO_ROUND,
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
        self._firsts = FirstsOfRuns()

    def summary(self, run: str) -> RunStatus:
        """Everything the live table shows of one run; `NotFound` names the runs there are."""
        return summarise(gather(self._ledger, self.bus, run, firsts=self._firsts), now_ms())

    def everything(self) -> tuple[tuple[RunStatus, ...], tuple[QueueStatus, ...], tuple[WorkerStatus, ...]]:
        """All runs, queues and processes."""
        workers = read_workers(self.bus)
        facts = [gather(self._ledger, self.bus, view.record.run, workers, firsts=self._firsts) for view in self._ledger.runs()]
        looked_ms = now_ms()
        runs = tuple(summarise(fact, looked_ms) for fact in facts)
        queues = queue_table(workers, [job for fact in facts for job in fact.jobs], looked_ms)
        return runs, tuple(queues), tuple(worker_status(beat, looked_ms) for beat in workers)
