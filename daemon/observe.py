"""Reads the control plane: everything `reconcile` and the status page look at. A thin shell over ledger and bus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol, TypeVar

from azq import logs
from azq.bus.base import Bus, Entry
from azq.config import parse_run
from azq.errors import ConfigError, WireError
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState, RunView
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import EvalRound, GradeResult, Heartbeat, LearnerStatus, MatchResult, Message, RunRecord, WeightEvent
from daemon.fleet import note_full
from daemon.state import Desired, DesiredRun, Observed, ObservedRun
from daemon.summary import RunFacts

RESULTS_READ = 600  # newest results that a rating looks at; its cost grows with the cube of the versions among them
ENDED_READ = 20

M = TypeVar("M", bound=Message)

log = logs.get(__name__)


class LedgerReader(Protocol):
    """The part of the ledger that reading needs."""

    def run(self, name: str) -> RunView: ...
    def runs(self) -> list[RunView]: ...
    def jobs(self, run: str | None = None, *, active_only: bool = True, limit: int = 1000) -> list[JobView]: ...
    def counts(self, run: str) -> LedgerCounts: ...


def read_workers(bus: Bus) -> tuple[Heartbeat, ...]:
    """The live processes, by role and name; a heartbeat that does not decode (another azq version) is left out and logged."""
    beats = [decoded for key, frame in bus.values(keys.BEAT_PREFIX).items() if (decoded := _decode(frame, Heartbeat, key)) is not None]
    return tuple(sorted(beats, key=lambda beat: (beat.role, beat.worker)))


def read_learner(bus: Bus, run: str) -> LearnerStatus | None:
    """What the run's learner said last; None when it is silent."""
    frame = bus.get(keys.learner_status(run))
    return _decode(frame, LearnerStatus, keys.learner_status(run)) if frame else None


def read_weights(bus: Bus, run: str, count: int = 1) -> list[WeightEvent]:
    """The newest weight events, newest first."""
    stream = keys.weights(run)
    return [
        event for entry in bus.newest(stream, count) if (event := _decode(entry.frame, WeightEvent, f"{stream} {entry.id}")) is not None
    ]


def read_round(bus: Bus, run: str) -> EvalRound | None:
    """The newest evaluation round that was asked for."""
    frame = bus.get(keys.eval_round(run))
    return _decode(frame, EvalRound, keys.eval_round(run)) if frame else None


def read_results(bus: Bus, run: str, count: int = RESULTS_READ) -> tuple[list[MatchResult], list[GradeResult]]:
    """The newest matches and grades, newest first."""
    return split_results(bus.newest(keys.results(run), count))


def split_results(entries: Sequence[Entry]) -> tuple[list[MatchResult], list[GradeResult]]:
    """Matches and grades among entries of a results stream, in their order."""
    matches: list[MatchResult] = []
    grades: list[GradeResult] = []
    for entry in entries:
        if (match := _try(entry.frame, MatchResult)) is not None:
            matches.append(match)
        elif (grade := _decode(entry.frame, GradeResult, f"{entry.stream} {entry.id}")) is not None:
            grades.append(grade)
    return matches, grades


def gather(ledger: LedgerReader, bus: Bus, run: str, workers: tuple[Heartbeat, ...] | None = None) -> RunFacts:
    """Everything the status of one run is made of; `NotFound` names the runs there are."""
    view = ledger.run(run)
    matches, grades = read_results(bus, run)
    weights = read_weights(bus, run)
    return RunFacts(
        view=view,
        counts=ledger.counts(run),
        jobs=tuple(ledger.jobs(run)),
        learner=read_learner(bus, run),
        weights=weights[0] if weights else None,
        matches=tuple(matches),
        grades=tuple(grades),
        workers=read_workers(bus) if workers is None else workers,
    )


def observe(ledger: LedgerReader, bus: Bus, now_ms: int, full_ms: dict[str, int]) -> tuple[Desired, Observed]:
    """One look at everything; `full_ms` is that of the look before."""
    views = ledger.runs()
    workers = read_workers(bus)
    runs = {view.record.run: _observe_run(ledger, bus, view) for view in views}
    jobs = [view for seen in runs.values() for view in seen.jobs]
    return Desired(tuple(map(_desire, views))), Observed(workers, runs, note_full(full_ms, workers, jobs, now_ms))


def _observe_run(ledger: LedgerReader, bus: Bus, view: RunView) -> ObservedRun:
    name = view.record.run
    jobs = tuple(ledger.jobs(name))
    if view.state in (RunState.PAUSED, RunState.FAILED):
        return ObservedRun(ledger.counts(name), view.active_ms, jobs)
    weights = read_weights(bus, name)
    latest = read_round(bus, name)
    return ObservedRun(
        counts=ledger.counts(name),
        active_ms=view.active_ms,
        jobs=jobs,
        ended=_ended(ledger, name),
        learner=read_learner(bus, name),
        weight_version=weights[0].version if weights else 0,
        round_version=latest.weight_version if latest else 0,
        round_ms=latest.asked_ms if latest else 0,
    )


def _ended(ledger: LedgerReader, run: str) -> tuple[JobView, ...]:
    views = ledger.jobs(run, active_only=False, limit=ENDED_READ)
    ended = [view for view in views if view.state not in (JobState.QUEUED, JobState.LEASED)]
    return tuple(sorted(ended, key=lambda view: view.ended_ms, reverse=True))


def _desire(view: RunView) -> DesiredRun:
    record: RunRecord = view.record
    try:
        sections = parse_run(json.loads(record.sections), f"sections of run {record.run}")
    except (ConfigError, ValueError) as error:
        return DesiredRun(record.run, view.state, None, record.until, view.changed_ms, unreadable=str(error))
    return DesiredRun(record.run, view.state, sections, record.until, view.changed_ms)


def _try(frame: bytes, kind: type[M]) -> M | None:
    try:
        return decode(frame, kind)
    except WireError:
        return None


def _decode(frame: bytes, kind: type[M], place: str) -> M | None:
    try:
        return decode(frame, kind)
    except WireError as error:
        log.warning("unreadable", place=place, reason=str(error))
        return None
