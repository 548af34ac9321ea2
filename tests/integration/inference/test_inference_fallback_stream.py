"""A worker whose device computes nonsense: it falls back, or leaves, and every request gets the right answer from somebody."""

from __future__ import annotations

import numpy as np
import pytest
from inference_doubles import CONFIG, RUN, SPEC, FakeEngine, answering, ask, observations, same_bits, serving, weights
from waiting import PATIENCE_S, until

from azq.errors import DeviceError, EvaluatorFailure
from azq.inference.ask.local import LocalEvaluator
from azq.inference.device.engine import Mode
from azq.wire import keys

NAN = answering(np.nan)


def step_for_ever(server):
    while True:
        server.step(20)


def test_a_worker_that_computes_nan_leaves_and_another_answers(connect, shelf):
    shelf.publish(1, weights(1))
    client, data = connect.client(resend_after_s=60.0, max_in_flight=16), connect.data()
    engine = FakeEngine({})
    bad = connect.server(shelf, "inference@bad:1", engine=engine)
    with serving(bad):
        ask(connect.client("c2"), observations(4))  # of no use to the other client's measure of a usual answer
    engine.failing.update(dict.fromkeys(Mode, NAN))  # its device breaks in service
    packed = [observations(count, seed=count) for count in (1, 7, 40, 256)]
    handles = [client.submit(rows) for rows in packed]
    with pytest.raises(DeviceError, match="even the plain forward pass failed"):
        step_for_ever(bad)
    local = LocalEvaluator.from_bytes(SPEC, weights(1), CONFIG)
    with serving(connect.server(shelf, "inference@good:2")):
        for rows, handle in zip(packed, handles, strict=True):
            answer = client.result(handle, timeout_s=PATIENCE_S)
            assert answer is not None
            assert same_bits(answer, local.result(local.submit(rows), timeout_s=PATIENCE_S))
        until(lambda: data.length(keys.eval_stream(RUN)) == 0, "nothing is left pending")
    assert client.resent == 0  # all were claimed from the one that left
    local.close()


def test_a_worker_that_can_falls_back_and_answers_by_itself(connect, shelf):
    shelf.publish(1, weights(1))
    client, engine = connect.client(resend_after_s=PATIENCE_S), FakeEngine({})  # asked again, it would fail again
    server = connect.server(shelf, engine=engine)
    exact = LocalEvaluator.from_bytes(SPEC, weights(1), CONFIG.model_copy(update={"precision": "float32"}))
    packed = observations(40)
    with serving(server):
        ask(client, packed)
        assert (server.note, server.rates()["rung"]) == ("", 0.0)
        engine.failing |= {Mode.FAST: NAN, Mode.EAGER: NAN}
        assert same_bits(ask(client, packed), exact.result(exact.submit(packed), timeout_s=PATIENCE_S))
        assert server.rates()["fallbacks"] == 2
        assert (server.note, server.rates()["rung"]) == ("served by: plain, at most 256 leaves", 3.0)
        shelf.publish(2, weights(2, version=2))
        until(lambda: server.versions == {RUN: 2}, "new weights are taken over all the same")
        assert ask(client, packed).weight_version == 2
    exact.close()


def test_weights_that_evaluate_to_nan_by_themselves_are_named_to_the_client(connect, shelf):
    shelf.publish(1, weights(1))
    client, engine = connect.client(resend_after_s=PATIENCE_S), FakeEngine({})  # asked again, it would fail again
    server = connect.server(shelf, engine=engine)
    with serving(server):
        ask(client, observations(4))
    server.served[RUN].borrow(1).reference.policy.weight.data.fill_(np.nan)
    engine.failing |= dict.fromkeys(Mode, NAN)
    with serving(server), pytest.raises(EvaluatorFailure, match="weights version 1 evaluated to NaN or infinity"):
        ask(client, observations(4))
    assert engine.fallbacks == 0
