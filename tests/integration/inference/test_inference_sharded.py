"""Three real data brokers, two inference workers that read all of them, and clients that each use one."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from typing import Any

import pytest
from inference_doubles import CONFIG, RUN, SPEC, Shelf, make_server, observations, same_bits, serving, weights
from waiting import PATIENCE_S, until

from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.bus.sharded import open_requests
from azq.config import BrokerConfig
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.stream import BrokerRotation
from azq.search.evaluator import Evaluation
from azq.wire import keys
from azq.wire.connect import connect
from azq.wire.shards import on_shard, ranked, shard_named

COUNT = 3


@pytest.fixture
def brokers(tmp_path):
    """Three embedded data brokers."""
    servers = [EmbeddedServer("data", tmp_path / f"data{place}", maxmemory="64mb") for place in range(COUNT)]
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
            server.start()
        yield servers


@pytest.fixture
def served(brokers, control):
    """Two inference workers on all of them."""
    shelf = Shelf(control)
    shelf.publish(1, weights(1))
    settings = BrokerConfig(data_urls=tuple(server.url for server in brokers))
    with contextlib.ExitStack() as stack:
        for number in range(2):
            data = open_requests(settings)
            stack.callback(data.close)
            stack.enter_context(serving(make_server(control, data, shelf, f"inference@test:{number}", CONFIG)))
        yield


def client_of(brokers, name):
    def connected(place):
        return RedisBus(connect(brokers[place].url, timeout_s=1.0)), on_shard(name, place)

    choose = BrokerRotation(connected, ranked(name, range(COUNT)))
    bus, client = choose()
    return StreamEvaluator(bus, RUN, client, num_actions=SPEC.num_actions, resend_after_s=1.0, elsewhere=choose)


def place_of(client):
    return shard_named(client.client, COUNT)


def answers_of(client, batches):
    """Every batch asked, four at a time, and its answer."""
    found: dict[int, Evaluation] = {}
    waiting: dict[int, Any] = {}
    deadline_s = time.monotonic() + PATIENCE_S
    todo = list(enumerate(batches))
    while (todo or waiting) and time.monotonic() < deadline_s:
        while todo and len(waiting) < 4:
            index, packed = todo.pop(0)
            waiting[index] = client.submit(packed)
        for index, handle in list(waiting.items()):
            if (answer := client.result(handle, timeout_s=0.2)) is not None:
                found[index] = answer
                del waiting[index]
    return found


def in_threads(work, names):
    results: dict[str, Any] = {}
    threads = [threading.Thread(target=lambda name=name: results.__setitem__(name, work(name))) for name in names]
    for thread in threads:
        thread.start()
    return threads, results


def test_every_request_is_answered_as_by_one_broker_wherever_its_client_is(brokers, served):
    names = [f"worker@host:{number}:1" for number in range(24)]
    batches = [observations(size, seed=size) for size in (1, 7, 32, 33)]
    clients = {name: client_of(brokers, name) for name in names}
    spread = Counter(place_of(client) for client in clients.values())
    assert len(spread) == COUNT, spread
    threads, results = in_threads(lambda name: answers_of(clients[name], batches), names)
    for thread in threads:
        thread.join(PATIENCE_S)
    first = results[names[0]]
    assert len(first) == len(batches)
    for name in names:
        assert all(same_bits(results[name][index], first[index]) for index in first), name
    for server in brokers:
        bus = RedisBus(server.url)
        until(lambda bus=bus: bus.length(keys.eval_stream(RUN)) == 0, "nothing is left behind")
        bus.close()
    for client in clients.values():
        client.close()


def test_the_clients_of_a_broker_that_is_killed_move_on_and_nothing_wrong_is_answered(brokers, served):
    names = [f"worker@host:{number}:1" for number in range(6)]
    clients = {name: client_of(brokers, name) for name in names}
    lost = place_of(clients[names[0]])
    batches = [observations(16, seed=seed) for seed in range(8)]
    reference = answers_of(clients[names[0]], batches)
    assert len(reference) == len(batches)
    dead = threading.Event()

    def ask_until_after(name):
        """Rounds of all batches for as long as the broker lives, and one more when it is surely dead."""
        rounds = []
        while not dead.is_set():
            rounds.append(answers_of(clients[name], batches))
        return [*rounds, answers_of(clients[name], batches)]

    threads, results = in_threads(ask_until_after, names)
    try:
        brokers[lost].kill()
        until(brokers[lost].died, "the broker is dead")
    finally:
        dead.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    for name in names:
        for answers in results[name]:
            assert len(answers) == len(batches), f"{name}, now at {place_of(clients[name])}"
            assert all(same_bits(answer, reference[index]) for index, answer in answers.items())
        assert place_of(clients[name]) != lost
    # The next job's client is at home again once the broker is back.
    brokers[lost].start()
    until(lambda: place_of(client_of(brokers, names[0])) == lost, "its own broker is used again")
    again = client_of(brokers, names[0])
    assert same_bits(answers_of(again, batches)[0], reference[0])
    for client in (*clients.values(), again):
        client.close()


@pytest.mark.release
def test_a_broker_that_hangs_holds_up_the_others_for_moments_only(brokers, served):
    names = [f"worker@host:{number}:1" for number in range(6)]
    clients = {name: client_of(brokers, name) for name in names}
    hung = place_of(clients[names[0]])
    others = [name for name in names if place_of(clients[name]) != hung]
    assert others
    answers_of(clients[others[0]], [observations(4)])
    os.kill(brokers[hung].pid, signal.SIGSTOP)
    try:
        for name in (*others, names[0]):
            assert len(answers_of(clients[name], [observations(8, seed=seed) for seed in range(4)])) == 4, name
        assert place_of(clients[names[0]]) != hung
    finally:
        os.kill(brokers[hung].pid, signal.SIGCONT)
    for client in clients.values():
        client.close()
