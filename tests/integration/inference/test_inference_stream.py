"""Evaluations through a real broker."""

from __future__ import annotations

import numpy as np
import pytest
from clock_engine import ClockEngine
from inference_doubles import CONFIG, RUN, SPEC, ask, observations, same_bits, serving, weights
from waiting import PATIENCE_S, until

from azq.bus.redis import RedisBus
from azq.errors import EvaluatorFailure
from azq.inference.ask.local import LocalEvaluator
from azq.inference.weights import RESIDENT_VERSIONS
from azq.nets.device import place
from azq.search.evaluator import Evaluation


def test_requests_of_two_clients_share_a_batch_and_keep_their_order(connect, shelf):
    shelf.publish(1, weights(1))
    server = connect.server(shelf, config=CONFIG.model_copy(update={"deadline_ms": 200.0}))
    clients = [connect.client("a"), connect.client("b")]
    packed = [observations(40, seed=1), observations(60, seed=2)]
    handles = [client.submit(rows) for client, rows in zip(clients, packed, strict=True)]
    with serving(server):
        answers = [client.result(handle, timeout_s=PATIENCE_S) for client, handle in zip(clients, handles, strict=True)]
    assert server.stats.rates()["mean_batch"] == pytest.approx(100, rel=1e-3)
    assert set(server.stats.by_run()) == {RUN}
    local = LocalEvaluator.from_bytes(SPEC, weights(1), CONFIG)
    together = local.result(local.submit(np.concatenate(packed)), timeout_s=PATIENCE_S)
    assert same_bits(answers[0], Evaluation(together.logits[:40], together.values[:40], 1))
    assert same_bits(answers[1], Evaluation(together.logits[40:], together.values[40:], 1))
    local.close()


def test_a_device_has_its_next_batch_before_the_last_is_answered(connect, shelf, monkeypatch):
    config = CONFIG.model_copy(update={"max_batch": 64, "batch": 64, "deadline_ms": 0.0, "threads": 1})
    events = []
    answer = RedisBus.answer

    class Noted(ClockEngine):
        def end_s(self):
            events.append("launch")
            return super().end_s()

    def noted(bus, *given):
        events.append("answer")
        answer(bus, *given)

    monkeypatch.setattr(RedisBus, "answer", noted)
    shelf.publish(1, weights(1))
    client = connect.client(max_in_flight=8, clock_s=lambda: 0.0)  # by which nothing is late and sent again
    handles = [client.submit(observations(64, seed=seed)) for seed in range(6)]
    with serving(connect.server(shelf, config=config, engine=Noted(config, place(config), clock_s=0.05))):
        assert all(client.result(handle, timeout_s=PATIENCE_S).weight_version == 1 for handle in handles)
    assert "".join(event[0] for event in events) == "llllalalaaaa"[: len(events)]
    assert len(events) == 12


@pytest.mark.parametrize(("deadline_ms", "answered"), [("auto", 3), (3_600_000.0, 0)])
def test_a_cpu_waits_for_nobody_unless_it_was_told_to(connect, shelf, deadline_ms, answered):
    config = CONFIG.model_copy(update={"batch": 64, "deadline_ms": deadline_ms})
    shelf.publish(1, weights(1))
    server = connect.server(shelf, config=config)
    until(lambda: server.step(1) == 0 and server.versions == {RUN: 1}, "weights are served")
    connect.client().submit(observations(3))
    assert sum(server.step(50) for _ in range(10)) == answered


def test_legal_logits_are_those_of_all_and_no_others(connect, shelf):
    shelf.publish(1, weights(1))
    client, packed = connect.client(), observations(4)
    legal = np.array([[0b0000001], [0b1000000], [0b0010010], [0b0000100]], np.uint8)
    with serving(connect.server(shelf)):
        every, asked = ask(client, packed), client.result(client.submit(packed, legal=legal), timeout_s=PATIENCE_S)
    mask = np.unpackbits(legal, axis=1, count=7, bitorder="little").astype(bool)
    assert np.array_equal(asked.logits[mask], every.logits[mask])
    assert not asked.logits[~mask].any()
    assert np.array_equal(asked.values, every.values)


def test_pinned_versions_outlive_their_eviction(connect, shelf):
    count = RESIDENT_VERSIONS + 3
    for version in range(1, count + 1):
        shelf.publish(version, weights(version, version=version))
    client, packed = connect.client(), observations(8)
    with serving(connect.server(shelf)):
        first = {version: ask(client, packed, weight_version=version) for version in range(1, count + 1)}
        again = {version: ask(client, packed, weight_version=version) for version in range(1, count + 1)}
        assert ask(client, packed).weight_version == count
    assert all(first[version].weight_version == version and same_bits(first[version], again[version]) for version in first)
    assert len({first[version].logits.tobytes() for version in first}) == count


def test_a_version_never_published_is_a_named_failure(connect, shelf):
    shelf.publish(1, weights(1))
    client = connect.client()
    with serving(connect.server(shelf)):
        with pytest.raises(EvaluatorFailure, match="no weights version 7"):
            ask(client, observations(4), weight_version=7)
        assert ask(client, observations(4)).weight_version == 1


def test_requests_wait_until_there_are_weights(connect, shelf):
    client = connect.client()
    handle = client.submit(observations(4))
    with serving(connect.server(shelf)):
        assert client.result(handle, timeout_s=0.2) is None
        shelf.publish(1, weights(1))
        assert client.result(handle, timeout_s=PATIENCE_S).weight_version == 1
