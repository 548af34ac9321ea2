"""One client over several brokers in memory: which one it uses, when it moves, and that every request is answered once."""

from __future__ import annotations

import numpy as np
import pytest
from inference_doubles import RUN
from memory_broker import MemoryBus
from waiting import PATIENCE_S

from azq.errors import BrokerUnavailable, EvaluatorFailure
from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.stream import MOVE_AFTER_S, MUTE_AFTER_S, FailoverEvaluator
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest
from azq.wire.shards import on_shard

ACTIONS = 3


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        self.now_s += 0.02
        return self.now_s


@pytest.fixture
def brokers():
    return [MemoryBus() for _ in range(3)]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(brokers, clock):
    def connect(place):
        brokers[place].ping()
        return StreamEvaluator(brokers[place], RUN, on_shard("c", place), num_actions=ACTIONS, clock_s=clock)

    return lambda order=(1, 0, 2): FailoverEvaluator(connect, order, clock_s=clock)


def sent(broker: MemoryBus) -> list[EvalRequest]:
    return [codec.decode(entry.frame, EvalRequest) for entry in broker.after(keys.eval_stream(RUN), "0")]


def answer(broker, request, fill, error=""):
    logits = np.full((request.count, ACTIONS), fill, np.float16).tobytes()
    reply = EvalReply(request.request_id, 1, request.count, logits, np.zeros(request.count, np.float16).tobytes(), error)
    broker.reply([(keys.reply(request.client), codec.encode(reply))])


def submit(client, fill):
    return client.submit(np.full((2, 4), fill, np.uint8))


def until_moved(client, handle, place):
    for _ in range(1000):
        assert client.result(handle, timeout_s=0.0) is None
        if client.place == place:
            return
    raise AssertionError(f"it stays at {client.place}")


def test_the_first_broker_that_answers_is_used(make, brokers):
    assert make().place == 1
    brokers[1].down = True
    assert make().place == 0
    brokers[0].down = brokers[2].down = True
    with pytest.raises(BrokerUnavailable):
        make()


def test_answers_come_over_the_broker_in_use(make, brokers):
    client = make()
    handles = [submit(client, number) for number in (1, 2)]
    first, second = sent(brokers[1])
    assert first.client == "c#1"
    answer(brokers[1], second, 2)
    answer(brokers[1], first, 1)
    for number, handle in enumerate(handles, 1):
        assert client.result(handle, timeout_s=PATIENCE_S).logits.tolist() == [[number] * ACTIONS] * 2
        with pytest.raises(KeyError):
            client.result(handle, timeout_s=0.0)
    assert sent(brokers[0]) == sent(brokers[2]) == []


def test_a_broker_that_is_lost_is_left_with_everything_unanswered(make, brokers):
    client = make()
    handles = [submit(client, number) for number in (1, 2, 3)]
    answer(brokers[1], sent(brokers[1])[1], 2)
    assert client.result(handles[0], timeout_s=0.0) is None  # the second one's answer is here now
    brokers[1].down = True
    until_moved(client, handles[0], 0)
    again = sent(brokers[0])
    assert [request.packed[0] for request in again] == [1, 3]
    assert {request.client for request in again} == {"c#0"}
    assert {request.sends for request in again} == {2}  # whoever had them may have died of them
    for request in again:
        answer(brokers[0], request, request.packed[0])
    for number, handle in enumerate(handles, 1):
        assert client.result(handle, timeout_s=PATIENCE_S).logits.tolist() == [[number] * ACTIONS] * 2
    assert client.resent == 2
    submit(client, 4)
    assert len(sent(brokers[0])) == 3
    client.close()


def test_a_broker_that_is_back_in_time_is_kept(make, brokers, clock):
    client = make()
    handle = submit(client, 1)
    brokers[1].down = True
    began_s = clock.now_s
    while clock.now_s - began_s < MOVE_AFTER_S / 2:
        assert client.result(handle, timeout_s=0.0) is None
    brokers[1].down = False
    answer(brokers[1], sent(brokers[1])[0], 1)
    assert client.result(handle, timeout_s=PATIENCE_S) is not None
    assert client.place == 1


def test_with_every_broker_away_it_waits_and_takes_the_first_that_is_back(make, brokers):
    client = make()
    handle = submit(client, 1)
    for broker in brokers:
        broker.down = True
    for _ in range(200):
        assert client.result(handle, timeout_s=0.0) is None
    brokers[2].down = False
    until_moved(client, handle, 2)
    answer(brokers[2], sent(brokers[2])[0], 1)
    assert client.result(handle, timeout_s=PATIENCE_S) is not None


def test_a_named_failure_is_raised_and_the_handle_gone(make, brokers):
    client = make()
    handle = submit(client, 1)
    answer(brokers[1], sent(brokers[1])[0], 1, error="no such weights")
    with pytest.raises(EvaluatorFailure, match="no such weights"):
        client.result(handle, timeout_s=0.5)
    with pytest.raises(KeyError):
        client.result(handle, timeout_s=0.0)


def test_a_broker_over_which_no_answers_come_is_left_too(make, brokers, clock):
    client = make()
    clock.now_s += 2 * MUTE_AFTER_S  # with nothing asked, silence means nothing
    first = submit(client, 1)
    began_s = clock.now_s
    until_moved(client, first, 0)
    assert clock.now_s - began_s >= MUTE_AFTER_S
    answer(brokers[0], sent(brokers[0])[0], 1)
    assert client.result(first, timeout_s=PATIENCE_S) is not None
    second = submit(client, 2)
    for _ in range(3):
        clock.now_s += MUTE_AFTER_S / 4
        assert client.result(second, timeout_s=0.0) is None
    assert client.place == 0
