"""Where ranks of several hosts meet: in the control plane, which all of them reach, and nobody else may write."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from torch.distributed.distributed_c10d import Store

from azq.bus.base import Bus
from azq.errors import BrokerError, EvaluationTimeout
from azq.learner.ranks.group import listen_towards
from azq.waiting import until
from azq.wire import keys

T = TypeVar("T")

LIFE_S = 300.0  # of what members tell each other there: addresses
LOOK_S = 0.02
NAME = re.compile(r"bus-[0-9a-f]{32}")


def new_name() -> str:
    return f"bus-{secrets.token_hex(16)}"


def meet_over(bus: Bus, run: str, name: str, host: str, *, timeout_s: float) -> tuple[Store, str]:
    """The meeting place of this name on a bus, and the name."""
    listen_towards(host)
    return BusStore(bus, run, name, timeout_s), name


class BusStore(Store):
    """A store of `torch.distributed` on a bus; raises `RuntimeError`, as others do, where somebody does not come in time."""

    def __init__(self, bus: Bus, run: str, name: str, timeout_s: float) -> None:
        super().__init__()
        self._bus = bus
        self._run, self._name = run, name
        self._timeout_s = timeout_s

    def set(self, key: str, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._ask(lambda: self._bus.put(self._key(key), data, life_s=LIFE_S))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._ask(lambda: self._bus.get(self._key(key))) or b""

    def check(self, names: Sequence[str]) -> bool:
        found = self._ask(lambda: self._bus.get_each([self._key(name) for name in names]))
        return all(value is not None for value in found)

    def wait(self, names: Sequence[str], timeout: timedelta | None = None) -> None:
        within_s = timeout.total_seconds() if timeout else self._timeout_s
        try:
            until(lambda: self.check(names), f"ranks did not meet in time: nobody wrote {names[0]}", within_s, every_s=LOOK_S)
        except EvaluationTimeout as error:
            raise RuntimeError(str(error)) from None

    def delete_key(self, key: str) -> bool:
        self._ask(lambda: self._bus.delete(self._key(key)))
        return True

    def _key(self, key: str) -> str:
        return keys.meeting(self._run, f"{self._name}/{key}")

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BrokerError as error:
            raise RuntimeError(str(error)) from error
