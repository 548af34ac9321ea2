"""The inference worker's loop: drains the evaluation streams of all runs that have weights, in batches over many clients.

One step does each thing at most once and blocks only while there is nothing to do. An entry is acknowledged after its reply is
written, so a worker that dies leaves its entries to be claimed by another; evaluation is pure, so a double answer does no harm.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from azq import games, logs
from azq.bus.base import Bus, Entry
from azq.config import InferenceConfig, RunSections, parse_run
from azq.errors import ConfigError, StoreError, WeightsError, WireError
from azq.inference import requests
from azq.inference.batching import Plan, Waiting, plan
from azq.inference.catalog import WeightCatalog
from azq.inference.forward import Flight
from azq.inference.model import Fetch, Model, ResidentModels
from azq.inference.placement import Placement, place
from azq.inference.requests import BadRequest, Pending
from azq.inference.served import ServedRun
from azq.inference.stats import Stats
from azq.ledger.types import RunState, RunView
from azq.nets import NetSpec
from azq.phases import Phases
from azq.wire import keys

REFRESH_S = 0.25  # between looks at runs and weight events
IDLE_BLOCK_MS = 100
ENTRIES_PER_READ = 16
CPU_ENOUGH = 256  # leaves beyond which a CPU gains nothing from a larger batch
SERVED_STATES = frozenset({RunState.RUNNING, RunState.PAUSED, RunState.FINISHED})  # finished: its last evaluation


class Runs(Protocol):
    """The part of the ledger that names the runs."""

    def runs(self) -> list[RunView]: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests in flight together."""

    run: str
    weight_version: int
    members: tuple[Pending, ...]
    flight: Flight
    began_s: float


class InferenceServer:
    """Serves every run of a control plane from one device."""

    def __init__(
        self,
        control: Bus,
        data: Bus,
        runs: Runs,
        fetch: Callable[[RunView], Fetch],
        config: InferenceConfig,
        worker: str,
        *,
        spec_of: Callable[[RunSections], NetSpec] | None = None,
        placement: Placement | None = None,
    ) -> None:
        self.stats = Stats()
        self.phases = Phases()
        self._control = control
        self._data = data
        self._runs = runs
        self._fetch = fetch
        self._config = config
        self._worker = worker
        self._spec_of = spec_of or _spec_of
        self._placement = placement or place(config)
        on_cpu = self._placement.device.type == "cpu"
        self._enough = min(config.max_batch, CPU_ENOUGH) if on_cpu else config.max_batch
        self._depth = 1 if on_cpu else 2
        self._served: dict[str, ServedRun] = {}
        self._unusable: set[str] = set()  # runs whose settings this host cannot serve, said once
        self._pending: list[Pending] = []
        self._flying: deque[Batch] = deque()
        self._refresh_at_s = 0.0
        self._claim_at_s = 0.0
        self._idle = threading.Event()  # never set: waiting on it passes the time
        self._log = logs.get(__name__)

    def step(self, idle_block_ms: int = IDLE_BLOCK_MS) -> int:
        """Does what is due and returns the leaves answered; blocks at most `idle_block_ms`.

        Raises BrokerError; the entries it holds then are answered by later steps or by whoever claims them.
        """
        with self.phases("weights"):
            self._refresh()
        with self.phases("collect"):
            self._claim()
            self._wait_and_receive(idle_block_ms)
            members = self._plan().members
        if members:
            self._launch(members)
        if self._flying and (len(self._flying) >= self._depth or not members):
            return self._land(self._flying.popleft())
        return 0

    def _wait_and_receive(self, idle_block_ms: int) -> None:
        """Reads what has come; waits first where nothing is due yet."""
        plan = self._plan()
        due = bool(self._flying or plan.members)
        if not due and self._pending:
            # Not in the server: it looks at the end of a wait only ten times a second, the deadline is a few milliseconds.
            with self.phases("idle"):
                self._idle.wait(min(plan.wait_s, idle_block_ms / 1e3))
        self._receive(0 if due or self._pending else idle_block_ms)

    def drain(self) -> None:
        """Answers what is in flight; called before the end and before weights change in place."""
        while self._flying:
            self._land(self._flying.popleft())

    def release(self) -> None:
        """Forgets everything held after the broker was lost; the streams say what is still to be done."""
        self._flying.clear()
        self._pending.clear()
        self._refresh_at_s = self._claim_at_s = 0.0

    @property
    def versions(self) -> dict[str, int]:
        """Newest version served of each run."""
        return {run: served.current for run, served in self._served.items() if served.current}

    def rates(self) -> dict[str, float]:
        """The figures of the last seconds, and the device's memory."""
        return {**self.stats.rates(), **self.phases.shares(), **self._placement.memory()}

    def _plan(self) -> Plan:
        waiting = [Waiting((p.run, self._resolve(p)), p.request.count, p.arrived_s) for p in self._pending]
        deadline_s = self._config.deadline_ms / 1e3
        return plan(waiting, time.monotonic(), max_batch=self._config.max_batch, enough=self._enough, deadline_s=deadline_s)

    def _resolve(self, pending: Pending) -> int:
        return self._served[pending.run].resolve(pending.request.weight_version)

    def _refresh(self) -> None:
        now_s = time.monotonic()
        if now_s < self._refresh_at_s:
            return
        self._refresh_at_s = now_s + REFRESH_S
        views = {view.record.run: view for view in self._runs.runs() if view.state in SERVED_STATES}
        for run in [run for run in self._served if run not in views]:
            self._drop(run)
        for run, view in views.items():
            if run not in self._served and run not in self._unusable:
                self._admit(view)
        for served in self._served.values():
            served.follow(self.stats)

    def _admit(self, view: RunView) -> None:
        run = view.record.run
        try:
            sections = parse_run(json.loads(view.record.sections), f"run {run}")
            spec = self._spec_of(sections)
            catalog = WeightCatalog(self._control, run)
            models = ResidentModels(
                lambda: Model(spec, sections.network, self._config, self._placement), self._fetch(view), self._config.resident_versions
            )
            self._served[run] = ServedRun(run, sections.run.game, spec, catalog, models, before_load=self.drain)
        except (ConfigError, ValueError) as error:
            self._unusable.add(run)
            self._log.error("run_not_served", run=run, error=str(error))

    def _drop(self, run: str) -> None:
        self.drain()
        del self._served[run]
        self._pending = [pending for pending in self._pending if pending.run != run]

    def _claim(self) -> None:
        """Takes over entries that another worker read and did not answer."""
        now_s = time.monotonic()
        if now_s < self._claim_at_s:
            return
        self._claim_at_s = now_s + self._config.claim_after_s / 2
        for run in self.versions:
            idle_ms = int(self._config.claim_after_s * 1e3)
            claimed = self._data.claim(
                keys.eval_stream(run), keys.INFERENCE_GROUP, self._worker, min_idle_ms=idle_ms, count=ENTRIES_PER_READ
            )
            self._take(claimed)

    def _receive(self, block_ms: int) -> None:
        """Reads new entries while there is room for another batch; the rest is left to other workers."""
        streams = [keys.eval_stream(run) for run in self.versions]
        room = 2 * self._config.max_batch - sum(pending.request.count for pending in self._pending)
        if streams and room > 0:
            with self.phases("idle" if block_ms else "collect"):
                entries = self._data.read(streams, keys.INFERENCE_GROUP, self._worker, count=ENTRIES_PER_READ, block_ms=block_ms)
            self._take(entries)
        elif block_ms and not streams:
            with self.phases("idle"):
                self._idle.wait(block_ms / 1e3)

    def _take(self, entries: Iterable[Entry]) -> None:
        held = {_key(pending.entry) for pending in self._held()}
        asked = {(pending.request.client, pending.request.request_id) for pending in self._held()}
        by_stream = {keys.eval_stream(run): run for run in self._served}
        for entry in entries:
            if _key(entry) in held or entry.stream not in by_stream:
                continue
            run = by_stream[entry.stream]
            try:
                pending = requests.read_request(run, entry, self._served[run].spec, self._config.max_batch, time.monotonic())
            except WireError as error:
                self._bury(entry, error)
                continue
            if (pending.request.client, pending.request.request_id) in asked:
                self._data.ack(entry.stream, keys.INFERENCE_GROUP, [entry.id])  # sent again while it waits here: one answer is enough
            else:
                self._pending.append(pending)

    def _held(self) -> Iterator[Pending]:
        yield from self._pending
        for batch in self._flying:
            yield from batch.members

    def _bury(self, entry: Entry, error: WireError) -> None:
        """Keeps a bad frame for inspection and tells the client, where it is known."""
        self.stats.dead_letters += 1
        self._log.warning("request_dead_lettered", stream=entry.stream, entry=entry.id, error=str(error))
        self._data.dead_letter(entry, str(error))
        if isinstance(error, BadRequest):
            self._data.reply([requests.refusal(error.request, str(error))])
        self._data.ack(entry.stream, keys.INFERENCE_GROUP, [entry.id])

    def _launch(self, indices: tuple[int, ...]) -> None:
        chosen = set(indices)
        members = tuple(self._pending[index] for index in indices)
        self._pending = [pending for index, pending in enumerate(self._pending) if index not in chosen]
        served = self._served[members[0].run]
        version = self._resolve(members[0])
        model = self._model(served, version, members)
        if model is None:
            return
        with self.phases("copy"):
            packed = members[0].packed if len(members) == 1 else np.concatenate([pending.packed for pending in members])
        began_s = time.monotonic()
        with self.phases("copy" if self._depth > 1 else "forward"):  # beyond one in flight, a launch only copies and enqueues
            flight = model.launch(packed)
        self._flying.append(Batch(served.run, version, members, flight, began_s))

    def _model(self, served: ServedRun, version: int, members: tuple[Pending, ...]) -> Model | None:
        """The model, or None after telling the clients why there is none."""
        try:
            return served.model(version)
        except (WeightsError, StoreError) as error:
            self._log.warning("requests_refused", run=served.run, version=version, requests=len(members), error=str(error))
            self._answer(members, [requests.refusal(pending.request, str(error)) for pending in members])
            return None

    def _land(self, batch: Batch) -> int:
        """Waits for a batch and answers its requests; outputs that are not finite are answered with a failure."""
        with self.phases("forward"):
            outputs = batch.flight.wait()
        if batch.flight.device_s:
            self.phases.add_device("forward", batch.flight.device_s)
        leaves = sum(pending.request.count for pending in batch.members)
        self.stats.batch(leaves, time.monotonic() - batch.began_s)
        if not (np.isfinite(outputs[0]).all() and np.isfinite(outputs[1]).all()):
            reason = f"weights version {batch.weight_version} of run {batch.run} evaluated to NaN or infinity"
            self._log.error("evaluation_not_finite", run=batch.run, version=batch.weight_version, leaves=leaves)
            self._answer(batch.members, [requests.refusal(pending.request, reason) for pending in batch.members])
            return 0
        with self.phases("reply"):
            replies, start = [], 0
            for pending in batch.members:
                replies.append(requests.reply(pending, batch.weight_version, outputs, start))
                start += pending.request.count
            self._answer(batch.members, replies)
        return leaves

    def _answer(self, members: tuple[Pending, ...], replies: list[tuple[str, bytes]]) -> None:
        self._data.reply(replies)
        self._data.ack(members[0].entry.stream, keys.INFERENCE_GROUP, [pending.entry.id for pending in members])
        now_ms = time.time_ns() // 1_000_000
        self.stats.answered([now_ms - pending.request.sent_ms for pending in members])


def _key(entry: Entry) -> tuple[str, str]:
    return entry.stream, entry.id


def _spec_of(sections: RunSections) -> NetSpec:
    return NetSpec.of(games.load(sections.run.game, **sections.run.params))
