"""The inference worker's loop: drains the evaluation streams of all runs that have weights, in batches over many clients.

One step does each thing at most once and blocks only while there is nothing to do. An entry is acknowledged after its reply is
written, so a worker that dies leaves its entries to be claimed by another; evaluation is pure, so a double answer does no harm.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce

import torch

from azq import logs, metrics
from azq.bus.base import Bus, Entry, RequestBus
from azq.bus.wanted import wanted_runs
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import AzqError, WeightsError, WireError, reason_of
from azq.inference.device.engine import Engine, Execution
from azq.inference.device.forward import InFlightBatch, Outputs
from azq.inference.device.model import Model
from azq.inference.device.tuning import BatchLimits
from azq.inference.serve import requests
from azq.inference.serve.loading import LoadingThread
from azq.inference.serve.requests import BadRequest, BatchPlan, EntryKey, Group, Pending, key_of, plan
from azq.inference.serve.roster import NOT_THE_RUNS, Roster
from azq.inference.serve.served import Admission, ServedRun
from azq.inference.serve.stats import Stats, trace_requests
from azq.inference.serve.trials import REQUEST, Trials, Verdict
from azq.inference.weights import Fetch
from azq.ledger import Ledger
from azq.ledger.types import RunView
from azq.nets import NetSpec
from azq.phases import Phases
from azq.wire import keys

IDLE_BLOCK_MS = 100.0
POLL_MS = 0.2  # between looks at a device that could take another batch
LOAD_BLOCK_S = 0.005  # between looks at the stream while requests wait for their weights
ENTRIES_PER_READ = 16
CLAIM_AFTER_S = 2.0  # unanswered, then an entry is taken over from its reader
LOOK_AGAIN_S = 0.5  # at a suspect that waits
UNSERVED_TOLD = 20  # runs; their reasons travel in every heartbeat


@dataclass(frozen=True, slots=True)
class LaunchedBatch:
    served: ServedRun
    group: Group
    members: tuple[Pending, ...]
    model: Model
    running: InFlightBatch
    began_s: float
    alone: bool  # nothing else was on the device when it was launched

    @property
    def leaves(self) -> int:
        return sum(pending.count for pending in self.members)


class InferenceServer:
    """Serves every run of a control plane from one device."""

    def __init__(
        self,
        control: Bus,
        data: RequestBus,
        ledger: Ledger,
        fetch: Callable[[RunView], Fetch],
        engine: Engine,
        worker: str,
        spec_of: Callable[[RunSections], NetSpec],
    ) -> None:
        self.stats = Stats()
        self.phases = Phases()
        self._data = data
        self._config = engine.config
        self._worker = worker
        self._engine = engine
        self._depth = self._engine.in_flight
        admit = Admission(control, fetch, engine, worker, spec_of)
        roster = Roster(ledger, partial(wanted_runs, control))
        self._loading = LoadingThread(control, roster, admit, self.stats, lambda: self._engine.doing)
        self._trials = Trials(control, worker, REQUEST)
        self.served: dict[str, ServedRun] = {}
        self._pending: list[Pending] = []
        self.launched: deque[LaunchedBatch] = deque()
        self._request_leaves = 1  # of the request that came last
        self._claim_at_s = 0.0
        self._not_before_s: dict[EntryKey, float] = {}  # suspects that wait for what becomes of another trial, by entry
        self._threads = 0
        self._device_s = 0.0
        self._log = logs.get(__name__)

    def step(self, idle_block_ms: float = IDLE_BLOCK_MS) -> int:
        """Does what is due and returns the leaves answered; blocks at most `idle_block_ms`.

        Raises BrokerError; the entries it holds then are answered by later steps or by workers that claim them.
        Raises DeviceError when nothing here can run the network: workers that claim its entries answer them.
        """
        with self.phases("weights"):
            self._take_news()
        with self.phases("collect"):
            self._claim()
            now = self._wait_and_receive(idle_block_ms)
        if now.group and now.group.suspect:
            return self.drain() + self._try_alone(now.group, *now.members)
        if now.group and len(self.launched) < self._depth:
            self._launch(now.group, now.members)
        if len(self.launched) < self._depth and not self._oldest_done():
            return 0
        completed = self._complete(self.launched.popleft())
        if self._depth > 1:
            self._launch_next()
        return self._reply(completed)

    def _oldest_done(self) -> bool:
        """Whether the oldest batch is over. Until then, while the device has room, the next is looked for rather than this one waited for:
        what comes meanwhile is to be there when it ends."""
        return bool(self.launched) and self.launched[0].running.done()

    def _wait_and_receive(self, idle_block_ms: float) -> BatchPlan:
        """What is due after a look at what has come; where nothing is due yet, requests are waited for."""
        now = self._plan()
        if now.members or self._oldest_done():
            block_ms = 0.0
        elif self.launched:
            block_ms = POLL_MS
        elif self._pending:  # waits not in the broker, which looks at the end of a wait only ten times a second
            with self.phases("idle"):
                self._loading.news.wait(min(now.wait_s, LOAD_BLOCK_S, idle_block_ms / 1e3))
            block_ms = 0.0
        else:
            block_ms = idle_block_ms
        return self._plan() if self._receive(block_ms) or not now.members else now

    def drain(self) -> int:
        """Answers what is in flight; returns its leaves."""
        leaves = 0
        while self.launched:
            leaves += self._reply(self._complete(self.launched.popleft()))
        return leaves

    def release(self) -> None:
        """Forgets everything held after the broker was lost; the streams say what is still to be done."""
        while self.launched:
            batch = self.launched.popleft()
            batch.served.models.give_back(batch.group.weight_version)
        self._pending.clear()
        self._not_before_s.clear()
        self._claim_at_s = 0.0

    def close(self) -> None:
        """Stops following runs and weights."""
        self._loading.close()

    @property
    def versions(self) -> dict[str, int]:
        """Newest version served of each run."""
        return {run: served.current for run, served in self.served.items() if served.current}

    @property
    def unserved(self) -> dict[str, str]:
        """Runs that should be served from here and are not, and why; the first of many."""
        return dict(sorted(self._loading.unserved.items())[:UNSERVED_TOLD])

    @property
    def note(self) -> str:
        """What an operator should know of it: what its loading waits for, and a fallback."""
        slower = "" if self._execution == self._engine.execution else f"served by: {self._execution}"
        return "; ".join(filter(None, (self._engine.doing, slower)))

    @property
    def _execution(self) -> Execution:
        """The safest of the executions of all runs' newest weights."""
        return reduce(Execution.safer, filter(None, (served.execution for served in self.served.values())), self._engine.execution)

    def rates(self) -> dict[str, float]:
        """The figures of the last seconds."""
        if (device_s := self._engine.device_s) > self._device_s:
            self.phases.add_device("forward", device_s - self._device_s)
            self._device_s = device_s
        own = {metrics.FALLBACKS: float(self._engine.fallbacks), metrics.RUNG: float(self._execution.mode)}
        return {**self.stats.rates(), **self.phases.shares(), **own}

    def _plan(self) -> BatchPlan:
        """The requests to evaluate now, or none and the seconds to wait; those whose weights are being loaded wait apart."""
        now_s, groups = time.monotonic(), dict[Group, list[Pending]]()
        for pending in self._pending:
            if self._not_before_s.get(pending.key, 0.0) <= now_s:
                groups.setdefault(self._group(pending), []).append(pending)
        ready = {group: queue for group, queue in groups.items() if self.served[group.run].ready(group.weight_version)}
        if len(ready) < len(groups):
            self._loading.ask()
        return plan(ready, now_s, max_batch=self._engine.execution.max_batch, limits=self._limits)

    def _limits(self, group: Group) -> BatchLimits:
        """What a batch waits for. A CPU, which takes as long as there are leaves, waits for no others unless a deadline is set."""
        if group.suspect or (self._depth == 1 and self._config.deadline_ms == "auto"):
            return BatchLimits(1, 0.0)
        return self.served[group.run].limits

    def _group(self, pending: Pending) -> Group:
        version = self.served[pending.run].resolve(pending.request.weight_version)
        return Group(pending.run, version, pending.key if pending.suspect else None)

    def _take_news(self) -> None:
        """Takes over the runs as the loading thread sees them, and the threads it chose."""
        self._loading.start()
        self._loading.news.clear()
        if self.served is not self._loading.served:
            before, self.served = self.served, self._loading.served
            # Of a run that is gone, or was made again: the stream still holds them.
            stays = {run for run, served in self.served.items() if before.get(run) is served}
            self._pending = [pending for pending in self._pending if pending.run in stays]
            self._not_before_s.clear()
        if self._threads != self._engine.threads:
            self._threads = self._engine.threads
            torch.set_num_threads(self._threads)

    def _claim(self) -> None:
        """Takes over entries that another worker read and did not answer."""
        now_s = time.monotonic()
        if now_s < self._claim_at_s:
            return
        self._claim_at_s = now_s + CLAIM_AFTER_S / 2
        for run in self.versions:
            idle_ms = int(CLAIM_AFTER_S * 1e3)
            claimed = self._data.claim(
                keys.eval_stream(run), keys.INFERENCE_GROUP, self._worker, min_idle_ms=idle_ms, count=ENTRIES_PER_READ
            )
            self._take(claimed, claimed=True)

    def _receive(self, block_ms: float) -> bool:
        """Takes new entries while there is room for another batch; the rest is left to other workers. False when none came."""
        streams = [keys.eval_stream(run) for run in self.versions]
        room = 2 * self._config.max_batch - sum(pending.count for pending in self._pending)
        with self.phases("collect" if not block_ms else "forward" if self.launched else "idle"):
            if not streams or room <= 0:
                self._loading.news.wait(block_ms / 1e3)
                return False
            # Requests of the size seen last that fit: where each is a batch, what one worker reads ahead another waits for.
            count = min(ENTRIES_PER_READ, max(1, room // self._request_leaves))
            entries = self._data.read(streams, keys.INFERENCE_GROUP, self._worker, count=count, block_ms=block_ms)
        self._take(entries)
        return bool(entries)

    def _take(self, entries: Iterable[Entry], *, claimed: bool = False) -> None:
        held = {pending.key for pending in self.held()}
        awaited = {(pending.request.client, pending.request.request_id) for pending in self.held()}
        by_stream = {keys.eval_stream(run): run for run in self.served}
        for entry in entries:
            if key_of(entry) in held or entry.stream not in by_stream:
                continue
            run = by_stream[entry.stream]
            try:
                spec, now_s = self.served[run].spec, time.monotonic()
                pending = requests.read_request(run, entry, spec, self._config.max_batch, now_s, claimed=claimed)
            except WireError as error:
                self._bury(entry, error)
                continue
            if (pending.request.client, pending.request.request_id) in awaited:
                self._data.ack(entry.stream, keys.INFERENCE_GROUP, [entry.id])  # sent again while it waits here: one answer is enough
            else:
                self._pending.append(pending)
                self._request_leaves = pending.count

    def held(self) -> Iterator[Pending]:
        yield from self._pending
        for batch in self.launched:
            yield from batch.members

    def _bury(self, entry: Entry, error: WireError) -> None:
        """Keeps a bad frame for inspection and tells the client, where it is known."""
        self.stats.dead_letters += 1
        self._log.warning("request_dead_lettered", stream=entry.stream, entry=entry.id, error=str(error))
        self._data.dead_letter(entry, str(error))
        if isinstance(error, BadRequest):
            self._data.reply([requests.refusal(error.request, str(error), final=error.final)])
        self._data.ack(entry.stream, keys.INFERENCE_GROUP, [entry.id])

    def _launch(self, group: Group, members: tuple[Pending, ...]) -> None:
        served = self.served[group.run]
        try:
            model = served.borrow(group.weight_version)
        except AzqError as error:
            self._leave_queue(members)
            self._refuse(group, members, error)
            return
        if model is None:
            return  # overwritten since it was planned for; the next step asks for it
        self._leave_queue(members)
        alone, began_s = not self.launched, time.monotonic()
        try:
            with self.phases("forward" if self._depth == 1 else "copy"):  # beyond one in flight, a launch only copies and enqueues
                running = model.launch(*(pending.packed for pending in members))
        except NOT_THE_RUNS:
            raise
        except Exception as error:
            served.models.give_back(group.weight_version)
            self._part(members, error)
            return
        self.launched.append(LaunchedBatch(served, group, members, model, running, began_s, alone))

    def _try_alone(self, group: Group, pending: Pending) -> int:
        """Evaluates a suspect with nothing else on the device, or refuses what has killed before."""
        key = keys.trial(pending.run, pending.what)
        verdict = self._trials.begin(key)
        if verdict is Verdict.WAIT:
            self._not_before_s[pending.key] = time.monotonic() + LOOK_AGAIN_S
            return 0
        if verdict is Verdict.REFUSE:
            self._leave_queue((pending,))
            reason = f"{pending.count} leaves killed their inference worker {REQUEST.deaths} times while they were evaluated alone"
            self._bury(pending.entry, BadRequest(pending.request, reason, final=True))
            return 0
        with self._trials.survived(key):
            self._launch(group, (pending,))
            return self.drain()

    def _part(self, members: tuple[Pending, ...], error: Exception) -> None:
        """After an unforeseen error evaluates each request alone; one that raises again is refused."""
        self._log.error("batch_failed", run=members[0].run, requests=len(members), reason=reason_of(error), exc_info=error)
        for pending in members:
            if pending.suspect:
                self._bury(pending.entry, BadRequest(pending.request, f"its evaluation failed: {reason_of(error)}", final=True))
            else:
                self._pending.append(replace(pending, suspect=True))

    def _leave_queue(self, members: tuple[Pending, ...]) -> None:
        self._pending = [pending for pending in self._pending if pending not in members]
        for pending in members:
            self._not_before_s.pop(pending.key, None)

    def _refuse(self, group: Group, members: tuple[Pending, ...], error: Exception) -> None:
        named = {"run": group.run, "version": group.weight_version, "requests": len(members)}
        self._log.warning("requests_refused", **named, error=reason_of(error))
        self._answer(members, [requests.refusal(pending.request, reason_of(error)) for pending in members])

    def _launch_next(self) -> None:
        """Gives a device its next batch before the completed one is answered, so that it does not idle meanwhile."""
        with self.phases("collect"):
            now = self._plan()
            if not now.group and self._receive(0):  # mostly it came while the device worked
                now = self._plan()
        if now.group and not now.group.suspect:
            self._launch(now.group, now.members)

    def _complete(self, batch: LaunchedBatch) -> tuple[LaunchedBatch, Outputs] | None:
        """Waits for a batch; weights that evaluate to NaN are named to its clients, an unforeseen error parts its requests."""
        try:
            with self.phases("forward"):
                outputs = batch.model.complete(batch.running, *(pending.packed for pending in batch.members))
            busy_s = time.monotonic() - batch.began_s
        except WeightsError as error:
            self._refuse(batch.group, batch.members, error)
            return None
        except NOT_THE_RUNS:
            raise
        except Exception as error:
            self._part(batch.members, error)
            return None
        finally:
            batch.served.models.give_back(batch.group.weight_version)
        self.stats.batch(batch.group.run, batch.leaves, busy_s)
        if batch.alone and batch.served.tuned:
            batch.served.tuned.observe(batch.leaves, busy_s)
        return batch, outputs

    def _reply(self, completed: tuple[LaunchedBatch, Outputs] | None) -> int:
        """Answers the requests of a batch; the leaves answered."""
        if completed is None:
            return 0
        batch, outputs = completed
        with self.phases("reply"):
            try:
                replies = requests.replies(batch.members, batch.group.weight_version, outputs)
            except Exception as error:
                self._part(batch.members, error)
                return 0
            self._answer(batch.members, replies)
        trace_requests(batch.members, batch.leaves, batch.group.weight_version)
        return batch.leaves

    def _answer(self, members: tuple[Pending, ...], replies: list[tuple[str, bytes]]) -> None:
        self._data.answer(replies, members[0].entry.stream, keys.INFERENCE_GROUP, [pending.entry.id for pending in members])
        answered_ms = now_ms()
        self.stats.answered([answered_ms - pending.request.sent_ms for pending in members])
