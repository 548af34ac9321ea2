"""The spans of those games of a slice that are traced."""

from __future__ import annotations

from collections.abc import Iterable

from azq.actor.groups import GameGroup
from azq.clock import now_ns
from azq.ledger.types import Lease
from azq.search.evaluator import Evaluation, Evaluator
from azq.tracing import BATCH, CREATE_RUN, EVALUATE, FINISH, RECONCILE, REQUESTS, SEND_JOB, SLICE, TRACES, span_of, trace_of
from azq.wire.messages import GameRecord


class TracedGames:
    """Which games of one slice are traced, since when and in which group.

    Spans of what daemon and Celery did before are made here, by the ledger's times: they know jobs, and no games.
    """

    def __init__(self, lease: Lease, made_ms: int, evaluator: Evaluator) -> None:
        self._lease, self._run, self._made_ms = lease, lease.job.run, made_ms
        self._which = lease.job.job_id, lease.attempt
        self._by_message = hasattr(evaluator, "client")  # else no other process evaluates
        self._open: dict[bytes, tuple[int, GameGroup]] = {}

    def begin(self, record: GameRecord, group: GameGroup) -> None:
        """A game was adopted; one without a move begins here."""
        for trace in TRACES.games(self._run, self._made_ms, [record.uid]):
            began_ns, run = now_ns(), trace_of("run", self._run, self._made_ms)
            self._open[trace] = began_ns, group
            created_ns, published_ns = (ms * 1_000_000 or began_ns for ms in (self._lease.created_ms, self._lease.published_ms))
            of_run = [(run, span_of(run, CREATE_RUN))]
            decided, root = ((RECONCILE, *self._which), (RECONCILE,)) if record.actions else ((RECONCILE,), ())
            TRACES.add(decided, [trace], created_ns, created_ns, below=root, links=of_run, run=self._run, uid=record.uid)
            TRACES.add((SEND_JOB, *self._which), [trace], created_ns, published_ns, below=decided, queue=self._lease.job.queue)

    def evaluated(self, group: GameGroup, handle: int, after_s: float, evaluation: Evaluation) -> None:
        """The evaluations of a request of a group came."""
        traced = [trace for trace, (_, among) in self._open.items() if among is group]
        if traced and TRACES.takes(request := trace_of("request", self._run, handle), REQUESTS):
            start_ns, links = now_ns() - int(after_s * 1e9), [(request, span_of(request, BATCH))] if self._by_message else []
            about = {"leaves": group.leaves, "weight_version": evaluation.weight_version}
            TRACES.add((EVALUATE, handle, *self._which), traced, start_ns, below=(SLICE, *self._which), links=links, **about)

    def finish(self, uids: Iterable[int], began_ns: int) -> None:
        """Games were committed with their samples."""
        for trace in TRACES.games(self._run, self._made_ms, uids):
            TRACES.add((FINISH,), [trace], began_ns, below=(SLICE, *self._which))
            self._end(trace)

    def end(self) -> None:
        """The slice is over."""
        for trace in tuple(self._open):
            self._end(trace)

    def _end(self, trace: bytes) -> None:
        if trace in self._open:
            owner, began_ns = self._lease.owner, self._open.pop(trace)[0]
            TRACES.add((SLICE, *self._which), [trace], began_ns, below=(SEND_JOB, *self._which), owner=owner)
