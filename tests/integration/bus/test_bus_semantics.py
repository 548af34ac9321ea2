"""What a bus does over a real server."""

from __future__ import annotations

import threading

import pytest
from waiting import PATIENCE_S, until

from azq.bus.base import Bus, Entry
from azq.bus.redis import RedisBus
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.messages import DeadLetter


@pytest.fixture
def bus(broker):
    client = connect(broker.data_url)
    yield RedisBus(client)
    client.close()


def frames(entries: list[Entry]) -> list[bytes]:
    return [entry.frame for entry in entries]


def test_a_frame_is_read_once_by_the_group(bus: Bus) -> None:
    ids = [bus.publish("s", bytes([number])) for number in range(5)]
    first = bus.read(["s"], "g", "a", count=3, block_ms=0)
    second = bus.read(["s"], "g", "b", count=3, block_ms=0)
    assert frames(first) == [b"\0", b"\1", b"\2"]
    assert frames(second) == [b"\3", b"\4"]
    assert [entry.id for entry in first + second] == ids
    assert bus.read(["s"], "g", "a", count=3, block_ms=0) == []


def test_a_group_made_late_starts_at_the_beginning(bus: Bus) -> None:
    for number in range(3):
        bus.publish("s", bytes([number]))
    assert len(bus.read(["s"], "late", "a", count=9, block_ms=0)) == 3


def test_several_streams_are_read_in_one_call(bus: Bus) -> None:
    bus.publish("s", b"1")
    bus.publish("t", b"2")
    bus.publish("s", b"3")
    entries = bus.read(["s", "t"], "g", "a", count=2, block_ms=0)
    assert {(entry.stream, entry.frame) for entry in entries} == {("s", b"1"), ("t", b"2"), ("s", b"3")}


def test_acknowledged_entries_are_gone(bus: Bus) -> None:
    bus.publish("s", b"1")
    bus.publish("s", b"2")
    entries = bus.read(["s"], "g", "a", count=9, block_ms=0)
    bus.ack("s", "g", [entries[0].id])
    assert bus.length("s") == 1
    assert frames(bus.claim("s", "g", "b", min_idle_ms=0, count=9)) == [b"2"]
    bus.ack("s", "g", [entry.id for entry in entries])  # one of them again
    bus.ack("s", "g", [])
    assert bus.length("s") == 0
    assert bus.claim("s", "g", "b", min_idle_ms=0, count=9) == []


def test_pending_entries_are_claimed_when_idle_long_enough(bus: Bus) -> None:
    for number in range(40):
        bus.publish("s", bytes([number]))
    bus.read(["s"], "g", "dead", count=99, block_ms=0)
    assert bus.claim("s", "g", "b", min_idle_ms=60_000, count=9) == []
    assert frames(bus.claim("s", "g", "b", min_idle_ms=0, count=2)) == [b"\0", b"\1"]
    assert len(bus.claim("s", "g", "b", min_idle_ms=0, count=99)) == 40
    assert bus.claim("nothing", "g", "b", min_idle_ms=0, count=9) == []


def test_a_deleted_stream_is_no_reason_to_stop(bus: Bus) -> None:
    bus.publish("s", b"1")
    bus.read(["s"], "g", "a", count=9, block_ms=0)
    bus.delete("s")
    assert bus.read(["s"], "g", "a", count=9, block_ms=0) == []
    bus.publish("s", b"2")
    assert frames(bus.read(["s"], "g", "a", count=9, block_ms=0)) == [b"2"]
    bus.delete("s")
    assert bus.claim("s", "g", "a", min_idle_ms=0, count=9) == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_waiting_reader_wakes_though_its_stream_was_lost(bus: Bus, lost: bool) -> None:
    bus.read(["s"], "g", "a", count=9, block_ms=0)
    got: list[Entry] = []
    reader = threading.Thread(target=lambda: got.extend(bus.read(["s"], "g", "a", count=9, block_ms=20_000)))
    reader.start()
    if lost:
        bus.delete("s")
    bus.publish("s", b"x")
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert frames(got) == [b"x"]


def test_an_empty_wait_ends(bus: Bus) -> None:
    assert bus.read(["s"], "g", "a", count=9, block_ms=30) == []
    assert bus.take_replies("r", timeout_s=0.03) == []
    assert bus.take_replies("r", timeout_s=0) == []


def test_after_shows_everything_to_everybody(bus: Bus) -> None:
    ids = [bus.publish("w", bytes([number])) for number in range(4)]
    assert frames(bus.after("w", "0")) == [b"\0", b"\1", b"\2", b"\3"]
    assert frames(bus.after("w", ids[1])) == [b"\2", b"\3"]
    assert frames(bus.after("w", ids[0], count=1)) == [b"\1"]
    assert bus.after("w", ids[3]) == []


def test_newest_first(bus: Bus) -> None:
    assert bus.newest("w") == []
    for number in range(4):
        bus.publish("w", bytes([number]))
    assert frames(bus.newest("w")) == [b"\3"]
    assert frames(bus.newest("w", 3)) == [b"\3", b"\2", b"\1"]


def test_max_length_is_a_fuse(bus: Bus) -> None:
    for _ in range(1000):
        bus.publish("s", b"x", max_length=100)
    assert 100 <= bus.length("s") < 400


def test_what_was_posted_is_there_and_its_failure_is_told_with_the_next_replies(bus: Bus) -> None:
    bus.post("s", b"1")
    bus.post("s", b"2", max_length=10)
    bus.reply([("r", b"a")])
    assert bus.take_replies("r", timeout_s=1) == [b"a"]
    assert frames(bus.after("s", "0")) == [b"1", b"2"]
    assert bus.take_replies("r", timeout_s=0) == []


def test_replies_come_in_order_and_at_most_count(bus: Bus) -> None:
    bus.reply([("r", bytes([number])) for number in range(5)] + [("other", b"o")])
    assert bus.take_replies("r", timeout_s=1, count=2) == [b"\0", b"\1"]
    assert bus.take_replies("r", timeout_s=1, count=1) == [b"\2"]
    assert bus.take_replies("r", timeout_s=1) == [b"\3", b"\4"]
    assert bus.take_replies("other", timeout_s=0) == [b"o"]
    bus.reply([])


def test_a_waiting_requester_wakes(bus: Bus) -> None:
    got: list[bytes] = []
    taker = threading.Thread(target=lambda: got.extend(bus.take_replies("r", timeout_s=20)))
    taker.start()
    bus.reply([("r", b"x"), ("r", b"y")])
    taker.join(PATIENCE_S)
    assert not taker.is_alive()
    assert got + bus.take_replies("r", timeout_s=0) == [b"x", b"y"]


def test_values_live_as_long_as_told(bus: Bus) -> None:
    bus.put("azq:beat:1", b"a")
    bus.put("azq:beat:2", b"b", life_s=0.02)
    bus.put("azq:beat*", b"c")
    bus.put("other", b"d", life_s=60)
    until(lambda: bus.get("azq:beat:2") is None)
    assert bus.values("azq:beat:") == {"azq:beat:1": b"a"}
    assert bus.values("azq:beat*") == {"azq:beat*": b"c"}
    assert bus.get("other") == b"d"
    assert bus.get("missing") is None
    bus.delete("other", "missing")
    bus.delete()
    assert bus.get("other") is None


def test_dead_letters_are_counted_capped_and_readable(bus: Bus) -> None:
    entry = Entry("s", "1-0", b"\xff" * 100_000)
    for _ in range(3):
        bus.dead_letter(entry, "not an EvalRequest")
    assert bus.dead_letters() == 3
    letter = decode(bus.newest(keys.DEAD)[0].frame, DeadLetter)
    assert (letter.stream, letter.entry_id) == ("s", "1-0")
    assert letter.reason.startswith("not an EvalRequest (first 16384 of 100000 bytes kept")
    for _ in range(1100):
        bus.dead_letter(Entry("s", "1-0", b"x"), "again")
    assert bus.length(keys.DEAD) == 1000
    assert bus.dead_letters() == 1103


def test_many_threads_lose_and_double_nothing(bus: Bus) -> None:
    def work(name: str) -> None:
        while entries := bus.read(["s"], "g", name, count=3, block_ms=50):
            with lock:
                seen.extend(frames(entries))
            bus.ack("s", "g", [entry.id for entry in entries])

    seen: list[bytes] = []
    lock = threading.Lock()
    for number in range(200):
        bus.publish("s", bytes([number]))
    threads = [threading.Thread(target=work, args=(f"c{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(seen) == [bytes([number]) for number in range(200)]
    assert bus.length("s") == 0


def test_newest_before_an_id_and_many_streams_at_one_moment(bus: Bus) -> None:
    ids = [bus.publish("w", bytes([number])) for number in range(4)]
    assert frames(bus.newest("w", 2, before=ids[2])) == [b"\1", b"\0"]
    assert bus.newest("w", 2, before=ids[0]) == []
    bus.publish("v", b"v")
    assert bus.after_each({}) == []
    read = bus.after_each({"w": ids[1], "v": "0", "none": "0"}, count=1)
    assert {(entry.stream, entry.frame) for entry in read} == {("w", b"\2"), ("v", b"v")}


def test_waiting_for_newer_entries_names_their_streams(bus: Bus) -> None:
    ids = [bus.publish("w", bytes([number])) for number in range(2)]
    bus.publish("v", b"v")
    assert bus.wait_for_newer({"w": ids[0], "v": "0", "none": "0"}, timeout_s=5.0) == ["v", "w"]
    assert bus.wait_for_newer({"w": ids[1], "none": "0"}, timeout_s=0.05) == []


def test_an_entry_that_arrives_ends_the_wait(bus: Bus) -> None:
    heard: list[list[str]] = []
    listener = threading.Thread(target=lambda: heard.append(bus.wait_for_newer({"w": "0", "v": "0"}, timeout_s=30.0)))
    listener.start()
    bus.publish("v", b"v")
    listener.join(PATIENCE_S)
    assert heard == [["v"]]
