"""What a process says of itself in the control plane. Its owner decides when it speaks, and what a plane that is away means to it."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import msgspec

from azq import __version__
from azq.clock import now_ms
from azq.config.host import MachineConfig
from azq.process.proc import usage
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import SCHEMA, Heartbeat

Measure: TypeAlias = Callable[[], Mapping[str, float]]

NO_RATES: Mapping[str, float] = MappingProxyType({})


class HeartbeatBus(Protocol):
    """What a heartbeat needs of `azq.bus.base.Bus`."""

    def put(self, key: str, value: bytes, *, life_s: float | None = None) -> None: ...
    def delete(self, *keys: str) -> None: ...


def machine_facts(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What every heartbeat of this machine says of it, by the settings that `azq.process.start` put into the environment."""
    return MachineConfig.model_validate_json(environment.get("AZQ_MACHINE", "{}")).facts()


class Presence:
    """A process in the control plane, from its first heartbeat until it leaves; `facts` are fields of all its heartbeats.

    `measure` says what the process costs: a simulated one has no process id to be measured by.
    """

    def __init__(self, role: str, *, life_s: float, every_s: float = 0.0, worker: str = "", measure: Measure = usage, **facts: Any) -> None:
        host, pid = socket.gethostname(), os.getpid()
        self.worker = worker or f"{role}@{host}:{pid}"
        always = machine_facts() | facts
        self._always = Heartbeat(role, self.worker, host, pid, __version__, SCHEMA, started_ms=now_ms(), sent_ms=0, **always)
        self._life_s = life_s
        self._measure = measure
        self._every_s = every_s
        self._last_s = -math.inf

    def due(self, intervals: int = 1) -> bool:
        """Whether as many intervals of `every_s` have passed since the last heartbeat; if so the next is counted from now."""
        now_s = time.monotonic()
        if now_s < self._last_s + intervals * self._every_s:
            return False
        self._last_s = now_s
        return True

    def beat(self, bus: HeartbeatBus, rates: Mapping[str, float] = NO_RATES, **changes: Any) -> None:
        """Says what there is to say now, what this process costs among it. Raises `BrokerError`."""
        heartbeat = msgspec.structs.replace(self._always, sent_ms=now_ms(), rates={**rates, **self._measure()}, **changes)
        bus.put(keys.beat(self.worker), encode(heartbeat), life_s=self._life_s)

    def leave(self, bus: HeartbeatBus) -> None:
        """Deletes the heartbeat before its life runs out. Raises `BrokerError`."""
        bus.delete(keys.beat(self.worker))
