"""The ledger in this process's memory: the double of `azq.ledger.ledger.Ledger`, made of the rules alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from azq.clock import now_ms
from azq.errors import NotFound, StateConflict
from azq.ledger import rules
from azq.ledger.holder import take_place
from azq.ledger.ledger import Ledger
from azq.ledger.rules.learner import held_by
from azq.ledger.rules.state import State, no_job, no_run
from azq.ledger.types import (
    ONCE_LIFE_S,
    Directive,
    Effort,
    JobView,
    LearnerLease,
    Lease,
    LedgerCounts,
    LedgerLoad,
    Once,
    RunLook,
    RunState,
    RunView,
    split_job_id,
)
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, Job, RunEvent, RunRecord, SampleEvent

P = ParamSpec("P")
T = TypeVar("T")


class Sink(Protocol):
    """The part of a bus that a ledger hands samples and results to."""

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str: ...
    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None: ...
    def length(self, stream: str) -> int: ...
    def delete(self, *keys: str) -> None: ...
    def get(self, key: str) -> bytes | None: ...


class MemoryLedger(Ledger):
    """Samples and results go to `bus`, which also tells of a stall. Safe to share between threads; one suite runs against both ledgers."""

    def __init__(self, bus: Sink, *, clock_ms: Callable[[], int] | None = None) -> None:
        self._bus = bus
        self._now_ms = clock_ms or now_ms
        self._lock = threading.RLock()
        self._runs: dict[str, State] = {}
        self._requests: dict[str, tuple[Once, str, int]] = {}  # by idempotency key: request, run, when it is forgotten
        self._created: dict[str, Any] = {}  # what they created

    def state(self, run: str) -> State:
        """The whole state of a run, for tests. Raises `NotFound`."""
        with self._lock:
            if run not in self._runs:
                raise no_run(run, self.names())
            return self._runs[run]

    # -- runs

    def create_run_once(self, record: RunRecord, once: Once | None) -> tuple[RunView, bool]:
        def create() -> RunView:
            if record.run in self._runs:
                raise StateConflict(f"run {record.run} exists already; resume it, or choose another name")
            self._keep(State(record, self._now_ms()))
            return self.run(record.run)

        rules.runs.check_run_name(record.run)
        return self._create_once(record.run, once, create)

    def first_run(self, name: str, once: Once | None) -> RunView | None:
        view: RunView | None = self._recall(name, once)
        return view

    def run(self, name: str) -> RunView:
        return rules.runs.run_view(self.state(name), self._now_ms())

    def names(self) -> list[str]:
        with self._lock:
            return sorted(self._runs)

    def runs(self, names: Sequence[str] | None = None) -> list[RunView]:
        with self._lock:
            return [self.run(name) for name in (self.names() if names is None else names) if name in self._runs]

    def stirring(self, names: Sequence[str]) -> list[str]:
        with self._lock:
            return [view.record.run for view in self.runs(names) if view.state is RunState.RUNNING or self.jobs(view.record.run, limit=1)]

    def look(self) -> list[RunLook]:
        with self._lock:
            return [self.look_at(name) for name in self.names()]

    def mend(self, names: Sequence[str] | None = None) -> dict[str, list[str]]:
        return {}  # nobody else writes here

    def look_at(self, name: str) -> RunLook:
        with self._lock:
            state = self.state(name)
            return RunLook(self.run(name), self.counts(name), tuple(self.jobs(name, limit=len(state.queue))), rules.jobs.recent(state))

    def set_run_state(self, name: str, state: RunState, reason: str = "") -> RunView:
        self._change(name, rules.runs.set_run_state, self._now_ms(), state, reason)
        return self.run(name)

    def update_run(self, record: RunRecord) -> RunView:
        self._change(record.run, lambda state: replace(state, record=record))
        return self.run(record.run)

    def update_run_until(self, name: str, until: dict[str, float]) -> RunView:
        with self._lock:
            return self.update_run(msgspec.structs.replace(self.state(name).record, until=dict(until)))

    def delete_run(self, name: str) -> None:
        with self._lock:
            if name in self._runs:
                rules.runs.check_deletable(self._runs[name], self._now_ms())
                del self._runs[name]
            self._bus.delete(*(key(name) for key in keys.OF_RUN))

    def load(self) -> LedgerLoad:
        with self._lock:
            states = self._runs.values()
            return LedgerLoad(sum(one.state is RunState.RUNNING for one in states), sum(len(one.queue) for one in states))

    def counts(self, run: str) -> LedgerCounts:
        with self._lock:
            state, in_transit = self.state(run), self._bus.length(keys.samples(run))
            games = (state.opened, state.finished, len(state.open), len(state.abandoned), state.inserted)
            return LedgerCounts(*games, in_transit, state.duplicates_dropped, state.written_off, *astuple(state.work))

    # -- jobs

    def enqueue_once(self, once: Once | None, job: Job) -> tuple[JobView, bool]:
        return self._create_once(job.run, once, lambda: self._answer(job.run, rules.jobs.enqueue, self._now_ms(), job))

    def first_job(self, run: str, once: Once | None) -> JobView | None:
        view: JobView | None = self._recall(run, once)
        return view

    def mark_published(self, job_id: str, attempt: int) -> None:
        run, number = split_job_id(job_id)
        with suppress(NotFound):
            self._change(run, rules.jobs.mark_published, self._now_ms(), number, attempt)

    def job(self, job_id: str) -> JobView:
        state, number = self._find(job_id)
        return state.jobs[number].view

    def jobs(self, run: str | None = None, *, active_only: bool = True, limit: int = 1000) -> list[JobView]:
        views: list[JobView] = []
        most = max(1, limit)
        with self._lock:
            for state in [self._runs[name] for name in ([run] if run is not None else self.names()) if name in self._runs]:
                numbers = [*state.waiting[:most], *(() if active_only else state.ended[:most])]
                views += [state.jobs[number].view for number in numbers]
        return views

    def jobs_below(self, run: str, below: int | None = None, *, active_only: bool = True, limit: int = 200) -> list[JobView]:
        with self._lock:
            if (state := self._runs.get(run)) is None:
                return []
            numbers = sorted({*state.waiting, *(() if active_only else state.ended)}, reverse=True)
            wanted = [number for number in numbers if below is None or number < below]
            return [state.jobs[number].view for number in wanted[: max(1, limit)]]

    def cancel(self, job_id: str) -> JobView:
        return self._change_job(job_id, rules.jobs.cancel)

    def requeue(self, job_id: str, attempt: int) -> JobView:
        return self._change_job(job_id, rules.jobs.requeue, attempt)

    def claim(self, job_id: str, attempt: int, owner: str, lease_s: float) -> Lease | None:
        run, number = split_job_id(job_id)
        if run not in self._runs:
            return None
        return self._answer(run, rules.jobs.claim, self._now_ms(), number, attempt, owner, lease_s)

    def renew(self, lease: Lease) -> Directive:
        run = lease.job.run
        with self._lock:
            full = self._bus.length(keys.samples(run)) >= rules.runs.max_waiting(self.state(run).record)
            stalled = full or self._bus.get(keys.stall(run)) is not None
            return self._answer(run, rules.jobs.renew, self._now_ms(), lease, stalled=stalled)

    def count_work(self, lease: Lease, work: Effort) -> None:
        self._change(lease.job.run, rules.jobs.count_work, lease, work)

    def expire(self, run: str, max_attempts: int) -> list[JobView]:
        return self._answer(run, rules.jobs.expire, self._now_ms(), max_attempts) if run in self._runs else []

    def fail(self, lease: Lease, error: str, *, max_attempts: int = 4) -> None:
        self._change(lease.job.run, rules.jobs.fail, self._now_ms(), lease, error, max_attempts)

    # -- open games

    def adopt(self, lease: Lease, count: int) -> list[GameRecord]:
        versions = self._bus.length(keys.weights(lease.job.run))
        return self._answer(lease.job.run, rules.games.adopt, lease, max(0, count), versions)

    def adopt_named(self, lease: Lease, uids: Sequence[int]) -> list[GameRecord]:
        return self._answer(lease.job.run, rules.games.adopt_named, lease, uids)

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        with self._lock:
            self._change(lease.job.run, rules.games.journal, lease, records)
            return self.renew(lease)

    def replace_games(self, lease: Lease, events: Sequence[SampleEvent], count: int) -> tuple[Directive, list[GameRecord]]:
        with self._lock:
            state = rules.games.finish_games(self.state(lease.job.run), lease, rules.games.distinct(events))
            for event in events:  # first, so that a bus that is down leaves the games open
                self._bus.publish(keys.samples(lease.job.run), encode(event))
            self._keep(state)
            return self.renew(lease), self.adopt(lease, count)

    def abandon(self, lease: Lease, uid: int, reason: str) -> None:
        self._change(lease.job.run, rules.games.abandon, lease, uid, reason)

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        self._change(lease.job.run, rules.games.release, self._now_ms(), lease, records)

    def complete(self, lease: Lease, result: bytes, problem: str = "") -> None:
        with self._lock:
            state, fresh = rules.games.complete(self.state(lease.job.run), self._now_ms(), lease, problem)
            if fresh:
                self._bus.publish(keys.results(lease.job.run), result)
            self._keep(state)

    # -- the learner

    def take_learner(self, run: str, holder: str, life_s: float) -> LearnerLease:
        with self._lock:
            found = take_place(lambda dead: self._answer(run, rules.learner.take_learner, self._now_ms(), holder, life_s, dead), holder)
            if found != holder:
                raise StateConflict(held_by(run, found))
            return LearnerLease(run, holder, self.state(run).learner.token, life_s)

    def renew_learner(self, lease: LearnerLease) -> None:
        self._change(lease.run, rules.learner.renew_learner, self._now_ms(), lease)

    def end_learner(self, lease: LearnerLease) -> None:
        self._change(lease.run, rules.learner.end_learner, lease)

    def record_inserted(
        self,
        run: str,
        inserted: int,
        duplicates_dropped: int,
        *,
        ack: Sequence[str] = (),
        refused: Mapping[int, str] | None = None,
        lease: LearnerLease | None = None,
    ) -> None:
        with self._lock:
            self._change(run, rules.learner.record_inserted, lease, inserted, duplicates_dropped, refused or {})
            self._bus.ack(keys.samples(run), keys.LEARNER_GROUP, ack)

    def restore(self, run: str, stored: int, highest: int, missing: Sequence[tuple[int, int]], lease: LearnerLease | None = None) -> int:
        with self._lock:
            before = self.state(run).written_off
            self._change(run, rules.learner.restore, lease, stored, highest, missing)
            return self.state(run).written_off - before

    def abandon_reason(self, run: str) -> str:
        return next(iter(self.state(run).abandoned.values()), "")

    def open_uids(self, run: str) -> set[int]:
        return set(self.state(run).open)

    def announce_weights(self, run: str, frame: bytes, lease: LearnerLease | None = None) -> None:
        with self._lock:
            rules.learner.check_learner(self.state(run), lease)
            self._bus.publish(keys.weights(run), frame)

    # -- how rules are applied

    def _change(self, run: str, rule: Callable[Concatenate[State, P], State], *args: P.args, **options: P.kwargs) -> None:
        with self._lock:
            self._keep(rule(self.state(run), *args, **options))

    def _answer(self, run: str, rule: Callable[Concatenate[State, P], tuple[State, T]], *args: P.args, **options: P.kwargs) -> T:
        with self._lock:
            state, answer = rule(self.state(run), *args, **options)
            self._keep(state)
            return answer

    def _change_job(self, job_id: str, rule: Callable[..., State], *args: int) -> JobView:
        with self._lock:
            state, number = self._find(job_id)
            self._keep(rule(state, self._now_ms(), number, *args))
            return self.job(job_id)

    def _keep(self, after: State) -> None:
        run = after.record.run
        for kind, about in rules.runs.events(self._runs.get(run), after):
            frame = encode(RunEvent(kind, self._now_ms(), about))
            self._bus.publish(keys.events(run), frame, max_length=rules.state.KEPT_EVENTS)
        self._runs[run] = after

    def _find(self, job_id: str) -> tuple[State, int]:
        run, number = split_job_id(job_id)
        if run not in self._runs or number not in self._runs[run].jobs:
            raise no_job(run, number)
        return self._runs[run], number

    def _create_once(self, run: str, once: Once | None, create: Callable[[], T]) -> tuple[T, bool]:
        """What is created, or was under this key, and whether it was; the key belongs to this request from now on."""
        with self._lock:
            if (first := self._recall(run, once)) is not None:
                return first, True
            if once is not None:
                self._requests.setdefault(once.key, (once, run, self._now_ms() + 1000 * ONCE_LIFE_S))
            created = create()
            if once is not None:
                self._created[once.key] = created
            return created, False

    def _recall(self, run: str, once: Once | None) -> Any:
        """What was created under a key; None where nothing was. Raises `KeyReused`."""
        with self._lock:
            if once is None or once.key not in self._requests:
                return None
            *request, until_ms = self._requests[once.key]
            if self._now_ms() >= until_ms:
                del self._requests[once.key]
                self._created.pop(once.key, None)
                return None
            if request != [once, run]:
                raise Once.reused()
            return self._created.get(once.key)
