"""One client over several brokers in memory: which one it uses, when it moves, and that every request is answered once."""

from __future__ import annotations

import numpy as np
import pytest
from inference_doubles import RUN
from memory_broker import MemoryBus
from waiting import PATIENCE_S

from azq.errors import BrokerUnavailable
from azq.inference.ask.client import MOVE_AFTER_S, MUTE_AFTER_S, StreamEvaluator
from azq.inference.ask.stream import BrokerRotation
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest
from azq.wire.shards import on_shard

ACTIONS = 3


class Clock:
    now_s = 100.0

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
def tries():
    """Places of the brokers to which a connection was tried."""
    return []


@pytest.fixture
def make(brokers, clock, tries):
    def connect(place):
        tries.append(place)
        brokers[place].ping()
        return brokers[place], on_shard("c", place)

    def client():
        choose = BrokerRotation(connect, (1, 0, 2))
        bus, name = choose()
        return StreamEvaluator(bus, RUN, name, num_actions=ACTIONS, max_in_flight=3, clock_s=clock, elsewhere=choose)

    return client


def sent(broker: MemoryBus) -> list[EvalRequest]:
    return [codec.decode(entry.frame, EvalRequest) for entry in broker.after(keys.eval_stream(RUN), "0")]


def answer(broker, request):
    logits = np.full((request.count, ACTIONS), request.packed[0], np.float16).tobytes()
    reply = EvalReply(request.request_id, 1, request.count, logits, np.zeros(request.count, np.float16).tobytes())
    broker.reply([(keys.reply(request.client), codec.encode(reply))])


def submit(client, fill):
    return client.submit(np.full((2, 4), fill, np.uint8))


def until_moved(client, handle, place):
    for _ in range(1000):
        assert client.result(handle, timeout_s=0.0) is None
        if client.client == on_shard("c", place):
            return
    raise AssertionError(f"it stays at {client.client}")


def test_the_first_broker_that_answers_is_used(make, brokers):
    assert make().client == "c#1"
    brokers[1].down = True
    assert make().client == "c#0"
    brokers[0].down = brokers[2].down = True
    with pytest.raises(BrokerUnavailable):
        make()


def test_brokers_take_turns_but_for_the_one_in_use():
    away = set()

    def connect(place):
        if place in away:
            raise BrokerUnavailable(f"no broker {place}")
        return None, str(place)

    choose = BrokerRotation(connect, (1, 0, 2))
    assert [choose()[1] for _ in range(4)] == ["1", "0", "2", "1"]
    away |= {0, 2}
    with pytest.raises(BrokerUnavailable, match="no broker 0"):
        choose()
    away.clear()
    assert choose()[1] == "0"


def test_a_broker_that_is_lost_is_left_with_everything_unanswered(make, brokers):
    client = make()
    handles = [submit(client, number) for number in (1, 2, 3, 4)]  # the last of which waits for a credit
    answer(brokers[1], sent(brokers[1])[1])
    assert client.result(handles[1], timeout_s=PATIENCE_S) is not None
    late = submit(client, 5)
    brokers[1].down = True
    until_moved(client, late, 0)
    # Whoever had a request may have died of it; nobody had the last one.
    again = sent(brokers[0])
    assert sorted((request.packed[0], request.client, request.sends) for request in again) == [(1, "c#0", 2), (3, "c#0", 2), (5, "c#0", 1)]
    for request in again:
        answer(brokers[0], request)
    assert client.result(late, timeout_s=PATIENCE_S).logits.tolist() == [[5] * ACTIONS] * 2
    assert client.result(handles[3], timeout_s=0.0) is None
    answer(brokers[0], sent(brokers[0])[3])
    for number in (1, 3, 4):
        assert client.result(handles[number - 1], timeout_s=PATIENCE_S).logits.tolist() == [[number] * ACTIONS] * 2
        with pytest.raises(KeyError):
            client.result(handles[number - 1], timeout_s=0.0)
    assert client.resent == 3
    assert not sent(brokers[2])
    client.close()


def test_a_broker_that_is_back_in_time_is_kept(make, brokers, clock):
    client = make()
    handle = submit(client, 1)
    brokers[1].down = True
    began_s = clock.now_s
    while clock.now_s - began_s < MOVE_AFTER_S / 2:
        assert client.result(handle, timeout_s=0.0) is None
    brokers[1].down = False
    answer(brokers[1], sent(brokers[1])[0])
    assert client.result(handle, timeout_s=PATIENCE_S) is not None
    assert client.client == "c#1"


def test_with_every_broker_away_it_waits_and_takes_the_first_that_is_back(make, brokers, clock, tries):
    client, began_s = make(), clock.now_s
    handle = submit(client, 1)
    for broker in brokers:
        broker.down = True
    for _ in range(200):
        assert client.result(handle, timeout_s=0.0) is None
    assert tries[:3] == [1, 0, 2]
    assert len(tries) <= 1 + 2 * (clock.now_s - began_s) / MOVE_AFTER_S, "both others once in a while"
    brokers[2].down = False
    until_moved(client, handle, 2)
    answer(brokers[2], sent(brokers[2])[0])
    assert client.result(handle, timeout_s=PATIENCE_S) is not None


def test_a_broker_over_which_no_answers_come_is_left_too(make, brokers, clock):
    client = make()
    clock.now_s += 2 * MUTE_AFTER_S  # with nothing to answer, silence means nothing
    first = submit(client, 1)
    began_s = clock.now_s
    until_moved(client, first, 0)
    assert clock.now_s - began_s >= MUTE_AFTER_S
    answer(brokers[0], sent(brokers[0])[0])
    assert client.result(first, timeout_s=PATIENCE_S) is not None
    second = submit(client, 2)
    for _ in range(3):
        clock.now_s += MUTE_AFTER_S / 4
        assert client.result(second, timeout_s=0.0) is None
    assert client.client == "c#0"
