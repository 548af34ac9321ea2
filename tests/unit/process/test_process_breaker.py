"""Patience with what is away: calls are made once a pause, and pauses grow."""

from __future__ import annotations

import pytest

from azq.errors import BrokerRefused, BrokerUnavailable
from azq.process.breaker import CircuitBreaker
from azq.waiting import Backoff


def test_outage_pauses_grow_and_end() -> None:
    now, broker_is_up, tries = [0.0], [False], []

    def call() -> str:
        tries.append(now[0])
        if not broker_is_up[0]:
            raise BrokerUnavailable("no broker at unix socket; start it")
        return "done"

    outage = CircuitBreaker(backoff=Backoff(1.0, 3.0), clock=lambda: now[0])
    for tick in range(12):
        now[0] = float(tick)
        assert outage.attempt(call) is None
    assert tries == [0, 1, 3, 6, 9]
    assert outage.active
    broker_is_up[0] = True
    now[0] = 20.0
    assert outage.attempt(call) == "done"
    assert not outage.active


def test_a_broker_that_refuses_is_not_waited_for() -> None:
    def call() -> None:
        raise BrokerRefused("wrong password")

    with pytest.raises(BrokerRefused):
        CircuitBreaker().attempt(call)
