"""What ends an inference worker's loop, and what does not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from azq.errors import BrokerRefused, BrokerUnavailable, DeviceError, EvaluationTimeout
from azq.waiting import Backoff
from workers import inference


class Server:
    """Does one thing after the other, then stops the loop."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.stop = threading.Event()
        self.released = self.drained = 0

    def step(self) -> int:
        if not self.steps:
            self.stop.set()
            return 0
        self.steps.pop(0)()
        return 1

    def release(self) -> None:
        self.released += 1

    def drain(self) -> None:
        self.drained += 1


def raising(error: Exception) -> Callable[[], object]:
    def step() -> None:
        raise error

    return step


def test_a_broker_that_goes_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "BACKOFF", Backoff(0.001, 0.001))
    server = Server(raising(BrokerUnavailable("gone")), raising(BrokerRefused("no")), lambda: None)
    inference.serve(server, lambda: None, server.stop)
    assert (server.released, server.drained, server.steps) == (2, 1, [])


@pytest.mark.parametrize("error", [DeviceError("lost"), EvaluationTimeout("loading run r hangs"), ZeroDivisionError()])
def test_anything_else_ends_it(error: Exception) -> None:
    server = Server(raising(error), lambda: None)
    with pytest.raises(type(error)):
        inference.serve(server, lambda: None, server.stop)
    assert server.released == 0
