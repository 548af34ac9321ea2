"""The spans of those games of a slice that are traced."""

from __future__ import annotations

from collections.abc import Iterable

from azq.actor.groups import GameGroup
from azq.clock import now_ns
from azq.ledger.types import Lease
from azq.search.evaluator import Evaluation, Evaluator
from azq.tracing import BATCH, CREATE_RUN, EVALUATE, FINISH, RECONCILE, REQUESTS, SEND_JOB, SLICE, TRACES, trace_of
from azq.wire.messages import GameRecord


class TracedGames:
    """Which games of one slice are traced, since when and in which group.

    What daemon and Celery did before is recorded here, by the ledger's times: they know jobs, and no games.
    """

    def __init__(self, lease: Lease, made_ms: int, evaluator: Evaluator) -> None:
        self._lease, self._run, self._made_ms = lease, lease.job.run, made_ms
        self._decided, self._sent, self._played = ((name, lease.job.job_id, lease.attempt) for name in (RECONCILE, SEND_JOB, SLICE))
        self._by_message = hasattr(evaluator, "client")  # else no other process evaluates
        self._open: dict[bytes, tuple[int, GameGroup]] = {}

    def begin(self, record: GameRecord, group: GameGroup) -> None:
        """A game was adopted; one without a move begins here."""
        for trace in TRACES.sampled("game", self._run, self._made_ms, numbers=[record.uid]):
            began_ns = now_ns()
            self._open[trace] = began_ns, group
            created_ns, published_ns = (ms * 1_000_000 or began_ns for ms in (self._lease.created_ms, self._lease.published_ms))
            decided, root = (self._decided, (RECONCILE,)) if record.actions else ((RECONCILE,), ())
            of_run = {trace_of("run", self._run, self._made_ms): CREATE_RUN}
            TRACES.add(decided, [trace], created_ns, created_ns, below=root, links=of_run, run=self._run, uid=record.uid)
            TRACES.add(self._sent, [trace], created_ns, published_ns, below=decided, queue=self._lease.job.queue)

    def evaluated(self, group: GameGroup, handle: int, after_s: float, evaluation: Evaluation) -> None:
        """The evaluations of a request of a group came."""
        traced = [trace for trace, (_, among) in self._open.items() if among is group]
        for request in TRACES.sampled("request", self._run, numbers=[handle] if traced else [], times=REQUESTS):
            start_ns, links = now_ns() - int(after_s * 1e9), {request: BATCH} if self._by_message else {}
            about = {"leaves": group.leaves, "weight_version": evaluation.weight_version}
            TRACES.add((EVALUATE, handle, *self._played), traced, start_ns, below=self._played, links=links, **about)

    def finish(self, uids: Iterable[int], began_ns: int) -> None:
        """Games were committed with their samples."""
        traces = TRACES.sampled("game", self._run, self._made_ms, numbers=uids)
        TRACES.add((FINISH,), traces, began_ns, below=self._played)
        self.end([trace for trace in traces if trace in self._open])

    def end(self, traces: Iterable[bytes] | None = None) -> None:
        """The slice is over, for these games or for all."""
        for trace in [*self._open] if traces is None else traces:
            began_ns, _ = self._open.pop(trace)
            TRACES.add(self._played, [trace], began_ns, below=self._sent, owner=self._lease.owner)
