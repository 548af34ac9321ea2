"""Servers and clients on a real broker; one thread a process is enough for networks of this size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from inference_doubles import CONFIG, RUN, SPEC, Shelf, make_server

from azq.bus.redis import RedisBus
from azq.inference.ask.client import StreamEvaluator


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def control(broker):
    bus = RedisBus(broker.control_url)
    yield bus
    bus.close()


@pytest.fixture
def shelf(control):
    return Shelf(control)


@pytest.fixture
def connect(broker):
    """Makes servers and clients with connections of their own, and closes them."""
    opened: list[Any] = []

    def bus(url):
        opened.append(RedisBus(url))
        return opened[-1]

    class Connect:
        def server(self, shelf, name="inference@test:1", config=CONFIG, engine=None, ledger=None):
            opened.append(make_server(bus(broker.control_url), bus(broker.data_url), shelf, name, config, engine, ledger))
            return opened[-1]

        def client(self, name="c1", **options):
            evaluator = StreamEvaluator(bus(broker.data_url), RUN, name, num_actions=SPEC.num_actions, **options)
            opened.append(evaluator)
            return evaluator

        def data(self):
            return bus(broker.data_url)

    yield Connect()
    for item in reversed(opened):
        item.close()
