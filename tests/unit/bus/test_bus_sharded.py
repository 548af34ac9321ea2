"""Several brokers as one, with brokers in memory that go down and come back."""

from __future__ import annotations

import threading
import time

import pytest
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.bus.base import Entry
from azq.bus.sharded import ShardedBus
from azq.errors import AccessRefused, BrokerUnavailable
from azq.wire import keys, shards

RUN = "r1"
STREAM = keys.eval_stream(RUN)
GROUP = keys.INFERENCE_GROUP


@pytest.fixture
def brokers():
    return [MemoryBus() for _ in range(3)]


@pytest.fixture
def bus(brokers):
    made = ShardedBus(brokers)
    yield made
    made.close()


def read(bus, wanted, streams=(STREAM,)):
    """Reads until so many frames are there."""
    entries: list[Entry] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(entries) < wanted and time.monotonic() < deadline_s:
        entries += bus.read(list(streams), GROUP, "me", count=16, block_ms=100)
    return entries


def test_frames_of_every_broker_come_and_are_acknowledged_where_they_came_from(bus, brokers):
    for place, broker in enumerate(brokers):
        for number in range(3):
            broker.publish(STREAM, bytes([place, number]))
    entries = read(bus, 9)
    assert sorted(entry.frame for entry in entries) == sorted(bytes([place, number]) for place in range(3) for number in range(3))
    assert len({entry.id for entry in entries}) == 9, "ids of different brokers never meet"
    bus.ack(STREAM, GROUP, [entry.id for entry in entries])
    assert [broker.length(STREAM) for broker in brokers] == [0, 0, 0]
    assert bus.claim(STREAM, GROUP, "me", min_idle_ms=0, count=9) == []


def test_a_reply_goes_to_the_broker_on_which_its_client_listens(bus, brokers):
    bus.reply([(keys.reply(shards.on_shard("c", place)), bytes([place])) for place in range(3)] + [(keys.reply("plain"), b"p")])
    for place, broker in enumerate(brokers):
        assert broker.take_replies(keys.reply(shards.on_shard("c", place)), timeout_s=0.0) == [bytes([place])]
    assert brokers[0].take_replies(keys.reply("plain"), timeout_s=0.0) == [b"p"]


def test_what_another_worker_left_is_claimed_from_every_broker(bus, brokers):
    for broker in brokers:
        broker.publish(STREAM, b"x")
        broker.read([STREAM], GROUP, "dead", count=9, block_ms=0)
    claimed = bus.claim(STREAM, GROUP, "me", min_idle_ms=0, count=9)
    assert len(claimed) == 3
    bus.ack(STREAM, GROUP, [entry.id for entry in claimed])
    assert [broker.length(STREAM) for broker in brokers] == [0, 0, 0]


def test_what_was_read_ahead_is_not_claimed_from_itself(bus, brokers):
    assert bus.read([STREAM], GROUP, "me", count=9, block_ms=0) == []
    brokers[0].publish(STREAM, b"x")
    until(lambda: bool(bus._shards[0].ready), "it is read ahead")
    assert bus.claim(STREAM, GROUP, "me", min_idle_ms=0, count=9) == []
    assert [entry.frame for entry in read(bus, 1)] == [b"x"]


def test_a_refusal_is_raised_as_it_is(bus, brokers, monkeypatch):
    """To wait for a broker that sent this machine away changes nothing."""

    def refuse(*_args, **_options):
        raise AccessRefused("sent away")

    for broker in brokers:
        monkeypatch.setattr(broker, "read", refuse)
    with pytest.raises(AccessRefused, match="sent away"):
        read(bus, 1)


def test_an_unreadable_frame_is_kept_where_it_came_from(bus, brokers):
    brokers[2].publish(STREAM, b"odd")
    (entry,) = read(bus, 1)
    bus.dead_letter(entry, "why")
    assert [broker.dead_letters() for broker in brokers] == [0, 0, 1]


def test_a_frame_ends_the_wait_whichever_broker_it_comes_to(bus, brokers):
    assert bus.read([STREAM], GROUP, "me", count=9, block_ms=0) == []
    found = []
    reader = threading.Thread(target=lambda: found.extend(bus.read([STREAM], GROUP, "me", count=9, block_ms=30_000)))
    reader.start()
    brokers[1].publish(STREAM, b"x")
    reader.join(PATIENCE_S)
    assert [entry.frame for entry in found] == [b"x"]


def test_one_broker_down_stops_neither_reading_nor_answering_on_the_others(bus, brokers):
    read(bus, 0)
    brokers[1].publish(STREAM, b"lost with its broker")
    (entry,) = read(bus, 1)
    brokers[1].down = True
    brokers[0].publish(STREAM, b"a")
    brokers[2].publish(STREAM, b"b")
    assert sorted(found.frame for found in read(bus, 2)) == [b"a", b"b"]
    bus.ack(STREAM, GROUP, [entry.id])
    bus.reply([(keys.reply("c#1"), b"into nothing"), (keys.reply("c#2"), b"heard")])
    assert brokers[2].take_replies(keys.reply("c#2"), timeout_s=0.0) == [b"heard"]
    brokers[1].down = False
    brokers[1].publish(STREAM, b"back")
    assert [found.frame for found in read(bus, 1)] == [b"back"]


def test_all_brokers_down_is_said_and_passes(bus, brokers):
    for broker in brokers:
        broker.down = True

    def refused():
        try:
            bus.read([STREAM], GROUP, "me", count=9, block_ms=20)
        except BrokerUnavailable:
            return True
        return False

    until(refused)
    for broker in brokers:
        broker.down = False
    brokers[0].publish(STREAM, b"x")
    found = []

    def heard():
        try:
            found.extend(bus.read([STREAM], GROUP, "me", count=9, block_ms=20))
        except BrokerUnavailable:
            return False
        return bool(found)

    until(heard)
    assert [entry.frame for entry in found] == [b"x"]


def test_new_streams_are_read_and_old_ones_left(bus, brokers):
    brokers[0].publish(STREAM, b"1")
    read(bus, 1)
    other = keys.eval_stream("other")
    brokers[0].publish(other, b"2")
    assert [entry.stream for entry in read(bus, 1, [STREAM, other])] == [other]
    assert read(bus, 0, []) == []
