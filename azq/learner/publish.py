"""New weights: stored once under their hash, then announced in the run's weights stream."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeAlias

from torch import Tensor

from azq import logs
from azq.bus.base import Bus
from azq.bus.promotions import Promotions, needed
from azq.clock import now_ms
from azq.errors import StoreError, WeightsError, WireError
from azq.learner.replication.remote_index import write_event
from azq.nets.weights import WeightsMeta, from_bytes
from azq.store import Store
from azq.store.objects import ObjectPrefix
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import WeightEvent

BROKER_SCHEME = "redis:"
KEPT_IN_BROKER = 64  # newest versions that stay in the control plane, which never evicts by itself; besides what promotions need
_LOOK_BACK = 16  # entries; one that does not decode must not hide those before it

Weights: TypeAlias = tuple[dict[str, Tensor], WeightsMeta]  # state and description

log = logs.get(__name__)


class Publisher:
    """The only writer of a run's weights stream, to which `announce` appends a frame.

    Versions grow by one, also across restarts: each follows the stream's newest. An event is written to `prefix` before the stream, so
    that no version is used twice where the control plane is lost.
    """

    def __init__(
        self, bus: Bus, store: Store, run: str, *, announce: Callable[[bytes], object] | None = None, prefix: ObjectPrefix | None = None
    ) -> None:
        self._bus = bus
        self._store = store
        self._prefix = prefix
        self._run = run
        self._announce = announce or partial(bus.publish, keys.weights(run))
        self._promotions = Promotions(bus, run)
        self._retained: list[WeightEvent] = []  # older ones that a promotion needed when they became old
        self.version = 0

    def announced(self) -> Iterator[WeightEvent]:
        """The last events of the stream that can be read, newest first."""
        for entry in self._bus.newest(keys.weights(self._run), _LOOK_BACK):
            with contextlib.suppress(WireError):
                yield decode(entry.frame, WeightEvent)

    def whole(self, events: Iterable[WeightEvent]) -> Iterator[tuple[WeightEvent, Weights]]:
        """Those events whose weights are there and can be served, with them; the others are named and passed over."""
        for event in events:
            try:
                weights = from_bytes(self._store.get(event.uri, event.sha256))
            except (StoreError, WeightsError) as error:
                log.warning("weights_passed_over", version=event.version, reason=str(error))
            else:
                yield event, weights

    def next_version(self) -> int:
        """The version that `publish` will use if nothing is published in between."""
        newest = next(self.announced(), None)
        return max(self.version, newest.version if newest else 0) + 1

    def publish(self, data: bytes, version: int, step: int, **fields: Any) -> WeightEvent:
        """Stores weights and announces them, with further fields of the `WeightEvent`.

        Raises `BrokerUnavailable`, `StoreError`, or what `announce` raises; nothing is announced then.
        """
        sha256, uri = self._store.put(data)
        event = WeightEvent(self._run, version, sha256, uri, step, now_ms(), size=len(data), **fields)
        if self._prefix is not None:
            write_event(self._prefix, event)
        self._announce(encode(event))
        self.version = version
        if uri.startswith(BROKER_SCHEME):
            self._forget_old()
        return event

    def offer_again(self, events: Iterable[WeightEvent]) -> None:
        """Announces the newest whole weights to an empty stream, whose control plane lost them."""
        for event, _ in self.whole(sorted(events, key=lambda event: event.version, reverse=True)):
            self._announce(encode(event))
            log.warning("weights_offered_again", version=event.version, step=event.step, sha256=event.sha256[:12])
            return

    def _forget_old(self) -> None:
        """Deletes old blobs that no promotion needs; folders and buckets keep all of theirs."""
        entries = self._bus.newest(keys.weights(self._run), KEPT_IN_BROKER + 1)
        if len(entries) <= KEPT_IN_BROKER:
            return
        *needed_events, oldest = [decode(entry.frame, WeightEvent) for entry in entries]
        self._promotions.refresh()
        still = needed(self._promotions.events)
        old = [*self._retained, oldest]
        self._retained = [event for event in old if event.version in still]
        needed_events += self._retained
        for event in old:
            if event.uri.startswith(BROKER_SCHEME) and event.sha256 not in {other.sha256 for other in needed_events}:
                self._store.delete(event.uri)
