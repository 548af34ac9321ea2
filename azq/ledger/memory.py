"""The ledger in this process's memory: the double of `azq.ledger.ledger.Ledger`, made of the rules alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import msgspec

from azq.clock import now_ms
from azq.errors import NotFound, StateConflict
from azq.ledger import rules
from azq.ledger.holder import take_place
from azq.ledger.ledger import Ledger
from azq.ledger.rules.learner import held_by
from azq.ledger.types import (
    ONCE_LIFE_S,
    Directive,
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


class Sink(Protocol):
    """The part of a bus that a ledger hands samples and results to."""

    def publish(self, stream: str, frame: bytes, *, max_length: int | None = None) -> str: ...
    def ack(self, stream: str, group: str, ids: Sequence[str]) -> None: ...
    def length(self, stream: str) -> int: ...
    def delete(self, *keys: str) -> None: ...
    def get(self, key: str) -> bytes | None: ...


class MemoryLedger:
    """Every method is that of `Ledger`. Samples and results go to `bus`, which also tells of a stall; safe to share between threads."""

    def __init__(self, bus: Sink, *, clock_ms: Callable[[], int] | None = None) -> None:
        self._bus = bus
        self._clock_ms = clock_ms or (now_ms)
        self._lock = threading.RLock()
        self._runs: dict[str, rules.State] = {}
        self._answers = FirstAnswers()

    def state(self, run: str) -> rules.State:
        """The whole state of a run, for tests. Raises `NotFound`."""
        with self._lock:
            if run not in self._runs:
                raise NotFound(f"no run {run!r}; there are: {', '.join(sorted(self._runs)) or 'none'}")
            return self._runs[run]

    # -- runs

    def create_run(self, record: RunRecord) -> RunView:
        return self.create_run_once(record, None)[0]

    def create_run_once(self, record: RunRecord, once: Once | None) -> tuple[RunView, bool]:
        rules.check_run_name(record.run)
        with self._lock:
            first = self._answers.bind(once, record.run, self._clock_ms())
            if isinstance(first, RunView):
                return first, True
            if record.run in self._runs:
                raise StateConflict(f"run {record.run} exists already; resume it, or choose another name")
            self._keep(rules.State(record, self._clock_ms()))
            view = self.run(record.run)
            self._answers.remember(once, view)
            return view, False

    def first_run(self, name: str, once: Once | None) -> RunView | None:
        with self._lock:
            answer = self._answers.recall(once, name, self._clock_ms())
            return answer if isinstance(answer, RunView) else None

    def run(self, name: str) -> RunView:
        return rules.run_view(self.state(name), self._clock_ms())

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
            return [self.look_at(name) for name in sorted(self._runs)]

    def look_at(self, name: str) -> RunLook:
        with self._lock:
            state = self.state(name)
            return RunLook(self.run(name), self.counts(name), tuple(self.jobs(name, limit=len(state.queue))), rules.recent(state))

    def set_run_state(self, name: str, state: RunState, reason: str = "") -> RunView:
        with self._lock:
            self._keep(rules.set_run_state(self.state(name), self._clock_ms(), state, reason))
            return self.run(name)

    def update_run(self, record: RunRecord) -> RunView:
        with self._lock:
            self._keep(replace(self.state(record.run), record=record))
            return self.run(record.run)

    def update_run_until(self, name: str, until: dict[str, float]) -> RunView:
        with self._lock:
            return self.update_run(msgspec.structs.replace(self.state(name).record, until=dict(until)))

    def delete_run(self, name: str) -> None:
        with self._lock:
            if name in self._runs:
                rules.check_deletable(self._runs[name], self._clock_ms())
                del self._runs[name]
            self._bus.delete(*(key(name) for key in keys.OF_RUN))

    def load(self) -> LedgerLoad:
        with self._lock:
            states = self._runs.values()
            return LedgerLoad(sum(one.state is RunState.RUNNING for one in states), sum(len(one.queue) for one in states))

    # -- jobs

    def enqueue(self, job: Job) -> JobView:
        return self.enqueue_once(None, job)[0]

    def enqueue_once(self, once: Once | None, job: Job) -> tuple[JobView, bool]:
        with self._lock:
            first = self._answers.bind(once, job.run, self._clock_ms())
            if isinstance(first, JobView):
                return first, True
            state, view = rules.enqueue(self.state(job.run), self._clock_ms(), job)
            self._keep(state)
            self._answers.remember(once, view)
            return view, False

    def first_job(self, run: str, once: Once | None) -> JobView | None:
        with self._lock:
            answer = self._answers.recall(once, run, self._clock_ms())
            return answer if isinstance(answer, JobView) else None

    def mark_published(self, job_id: str, attempt: int) -> None:
        run, number = split_job_id(job_id)
        with self._lock:
            if run in self._runs:
                self._keep(rules.mark_published(self._runs[run], self._clock_ms(), number, attempt))

    def job(self, job_id: str) -> JobView:
        state, number = self._find(job_id)
        return state.jobs[number].view

    def jobs(self, run: str | None = None, *, active_only: bool = True, limit: int = 1000) -> list[JobView]:
        with self._lock:
            views: list[JobView] = []
            for name in [run] if run is not None else sorted(self._runs):
                state = self._runs.get(name)
                if state is None:
                    continue
                numbers = [number for _, number in state.queue][: max(1, limit)]
                numbers += [] if active_only else state.ended[: max(1, limit)]
                views += [state.jobs[number].view for number in numbers]
            return views

    def jobs_below(self, run: str, below: int | None = None, *, active_only: bool = True, limit: int = 200) -> list[JobView]:
        with self._lock:
            state = self._runs.get(run)
            if state is None:
                return []
            numbers = {number for _, number in state.queue} | (set() if active_only else set(state.ended))
            wanted = sorted((number for number in numbers if below is None or number < below), reverse=True)
            return [state.jobs[number].view for number in wanted[: max(1, limit)]]

    def cancel(self, job_id: str) -> JobView:
        with self._lock:
            state, number = self._find(job_id)
            self._keep(rules.cancel(state, self._clock_ms(), number))
            return self.job(job_id)

    def claim(self, job_id: str, attempt: int, owner: str, lease_s: float) -> Lease | None:
        run, number = split_job_id(job_id)
        with self._lock:
            if run not in self._runs:
                return None
            state, lease = rules.claim(self._runs[run], self._clock_ms(), number, attempt, owner, lease_s)
            self._keep(state)
            return lease

    def renew(self, lease: Lease) -> Directive:
        with self._lock:
            state, run = self.state(lease.job.run), lease.job.run
            full = self._bus.length(keys.samples(run)) >= rules.max_waiting(state.record)
            stalled = full or self._bus.get(keys.stall(run)) is not None
            state, directive = rules.renew(state, self._clock_ms(), lease, stalled=stalled)
            self._keep(state)
            return directive

    def expire(self, run: str, max_attempts: int) -> list[JobView]:
        with self._lock:
            if run not in self._runs:
                return []
            state, views = rules.expire(self._runs[run], self._clock_ms(), max_attempts)
            self._keep(state)
            return views

    def requeue(self, job_id: str, attempt: int) -> JobView:
        with self._lock:
            state, number = self._find(job_id)
            self._keep(rules.requeue(state, self._clock_ms(), number, attempt))
            return self.job(job_id)

    # -- open games

    def adopt(self, lease: Lease, count: int) -> list[GameRecord]:
        with self._lock:
            state, games = rules.adopt(self.state(lease.job.run), lease, max(0, count))
            self._keep(state)
            return games

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        with self._lock:
            self._keep(rules.journal(self.state(lease.job.run), lease, records))
            return self.renew(lease)

    def finish_games(self, lease: Lease, events: Sequence[SampleEvent]) -> Directive:
        uids = [event.record.uid for event in events]
        if len(set(uids)) != len(uids):
            raise StateConflict("a game occurs twice among those to finish; finish each once")
        with self._lock:
            state = rules.finish_games(self.state(lease.job.run), lease, uids)
            for event in events:  # first, so that a bus that is down leaves the games open
                self._bus.publish(keys.samples(lease.job.run), encode(event))
            self._keep(state)
            return self.renew(lease)

    def abandon(self, lease: Lease, uid: int, reason: str) -> None:
        with self._lock:
            self._keep(rules.abandon(self.state(lease.job.run), lease, uid, reason))

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        with self._lock:
            self._keep(rules.release(self.state(lease.job.run), self._clock_ms(), lease, records))

    def complete(self, lease: Lease, result: bytes) -> None:
        with self._lock:
            state, fresh = rules.complete(self.state(lease.job.run), self._clock_ms(), lease)
            if fresh:
                self._bus.publish(keys.results(lease.job.run), result)
            self._keep(state)

    def fail(self, lease: Lease, error: str, *, max_attempts: int = 4) -> None:
        with self._lock:
            self._keep(rules.fail(self.state(lease.job.run), self._clock_ms(), lease, error, max_attempts))

    # -- counts

    def counts(self, run: str) -> LedgerCounts:
        with self._lock:
            state = self.state(run)
            return LedgerCounts(
                opened=state.opened,
                finished=state.finished,
                open=len(state.open),
                abandoned=len(state.abandoned),
                inserted=state.inserted,
                in_transit=self._bus.length(keys.samples(run)),
                duplicates_dropped=state.duplicates_dropped,
                written_off=state.written_off,
            )

    # -- the learner

    def take_learner(self, run: str, holder: str, life_s: float) -> LearnerLease:
        def take(dead: str) -> str:
            state, found = rules.take_learner(self.state(run), self._clock_ms(), holder, life_s, dead)
            self._keep(state)
            return found

        with self._lock:
            if (found := take_place(take, holder)) != holder:
                raise StateConflict(held_by(run, found))
            return LearnerLease(run, holder, self.state(run).learner.token, life_s)

    def renew_learner(self, lease: LearnerLease) -> None:
        with self._lock:
            self._keep(rules.renew_learner(self.state(lease.run), self._clock_ms(), lease))

    def end_learner(self, lease: LearnerLease) -> None:
        with self._lock:
            self._keep(rules.end_learner(self.state(lease.run), lease))

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
            self._keep(rules.record_inserted(self.state(run), lease, inserted, duplicates_dropped, refused or {}))
            self._bus.ack(keys.samples(run), keys.LEARNER_GROUP, ack)

    def restore(self, run: str, stored: int, highest: int, missing: Sequence[tuple[int, int]], lease: LearnerLease | None = None) -> int:
        with self._lock:
            before = self.state(run)
            self._keep(rules.restore(before, lease, stored, highest, missing))
            return self.state(run).written_off - before.written_off

    def open_uids(self, run: str) -> set[int]:
        return set(self.state(run).open)

    def announce_weights(self, run: str, frame: bytes, lease: LearnerLease | None = None) -> None:
        with self._lock:
            rules.check_learner(self.state(run), lease)
            self._bus.publish(keys.weights(run), frame)

    def _keep(self, after: rules.State) -> None:
        run = after.record.run
        for kind, about in rules.events(self._runs.get(run), after):
            frame = encode(RunEvent(kind, self._clock_ms(), about))
            self._bus.publish(keys.events(run), frame, max_length=rules.KEPT_EVENTS)
        self._runs[run] = after

    def _find(self, job_id: str) -> tuple[rules.State, int]:
        run, number = split_job_id(job_id)
        if run not in self._runs or number not in self._runs[run].jobs:
            raise NotFound(f"no job {job_id}; only the newest {rules.KEPT_ENDED_JOBS} ended jobs of a run are kept")
        return self._runs[run], number


class FirstAnswers:
    """Which key is bound to which request, and what that created, for a day. Not safe to share: the ledger holds its lock."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[Once, str, int]] = {}  # key -> request, run, when it is forgotten
        self._answers: dict[str, JobView | RunView] = {}

    def recall(self, once: Once | None, run: str, now_ms: int) -> JobView | RunView | None:
        """What was created; None where nothing was. Raises `KeyReused`."""
        if once is None or once.key not in self._bound:
            return None
        first, named, until_ms = self._bound[once.key]
        if now_ms >= until_ms:
            del self._bound[once.key]
            self._answers.pop(once.key, None)
            return None
        if (first, named) != (once, run):
            raise Once.reused()
        return self._answers.get(once.key)

    def bind(self, once: Once | None, run: str, now_ms: int) -> JobView | RunView | None:
        """What was created under this key, which from now on belongs to this request. Raises `KeyReused`."""
        answer = self.recall(once, run, now_ms)
        if once is not None:
            self._bound.setdefault(once.key, (once, run, now_ms + 1000 * ONCE_LIFE_S))
        return answer

    def remember(self, once: Once | None, answer: JobView | RunView) -> None:
        """Keeps what was created."""
        if once is not None:
            self._answers[once.key] = answer


AnyLedger: TypeAlias = Ledger | MemoryLedger  # one suite holds that the double answers alike
