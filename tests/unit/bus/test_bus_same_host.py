"""Requests between processes of one host: frames of any size arrive whole, and a worker that dies costs a client one more request."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.bus import same_host
from azq.bus.base import Entry
from azq.bus.same_host import HostFirstBus, HostRequests
from azq.bus.sharded import ShardedBus
from azq.errors import BrokerUnavailable
from azq.inference.ask.client import StreamEvaluator
from azq.wire import keys
from azq.wire.codec import MAX_FRAME_BYTES, decode, encode
from azq.wire.messages import EvalReply, EvalRequest

RUN = "r1"
STREAM, REPLIES, GROUP = keys.eval_stream(RUN), keys.reply("c"), keys.INFERENCE_GROUP


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def worker(home: Path) -> Iterator[HostRequests]:
    requests = HostRequests(home)
    yield requests
    requests.close()


@pytest.fixture
def broker() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def asking(worker: HostRequests, broker: MemoryBus, home: Path) -> Iterator[HostFirstBus]:
    bus = HostFirstBus(broker, STREAM, REPLIES, home)
    yield bus
    bus.close()


def read(worker: HostRequests, wanted: int, streams: tuple[str, ...] = (STREAM,)) -> list[Entry]:
    entries: list[Entry] = []
    until(lambda: len(entries.__iadd__(worker.read(streams, GROUP, "w", count=16, block_ms=20))) >= wanted, "requests")
    return entries


def take(asking: HostFirstBus, wanted: int, meanwhile: Callable[[], object] = lambda: None) -> list[bytes]:
    frames: list[bytes] = []

    def more() -> bool:
        meanwhile()
        frames.extend(asking.take_replies(REPLIES, timeout_s=0.02))
        return len(frames) >= wanted

    until(more, "replies")
    return frames


@pytest.mark.parametrize("size", [1, 4, 100_000, MAX_FRAME_BYTES])
def test_frames_of_any_size_come_whole_and_in_order(worker: HostRequests, asking: HostFirstBus, broker: MemoryBus, size: int) -> None:
    frames = [bytes([number]) * size for number in range(3)]
    sender = threading.Thread(target=lambda: [asking.post(STREAM, frame) for frame in frames])
    sender.start()  # more than the kernel holds: the sender waits for its reader
    entries = read(worker, 3)
    sender.join()
    assert [(entry.stream, entry.frame) for entry in entries] == [(STREAM, frame) for frame in frames]
    assert len({entry.id for entry in entries}) == 3
    worker.answer([(REPLIES, frame) for frame in frames], STREAM, GROUP, ())  # never waits for the client
    assert take(asking, 3, lambda: worker.read([STREAM], GROUP, "w", count=1, block_ms=0)) == frames
    assert broker.length(STREAM) == 0


def test_without_a_worker_of_this_host_the_broker_is_asked(broker: MemoryBus, home: Path) -> None:
    asking = HostFirstBus(broker, STREAM, REPLIES, home)
    asking.post(STREAM, b"a")
    assert [entry.frame for entry in broker.after(STREAM, "0")] == [b"a"]
    broker.reply([(REPLIES, b"b")])
    assert asking.take_replies(REPLIES, timeout_s=1.0) == [b"b"]


def test_replies_over_the_broker_arrive_beside_those_of_a_worker_that_started_later(
    broker: MemoryBus, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_host, "CONNECT_EVERY_S", 0.0)
    asking = HostFirstBus(broker, STREAM, REPLIES, home)
    asking.post(STREAM, b"a")
    worker = HostRequests(home)
    asking.post(STREAM, b"b")
    assert [entry.frame for entry in read(worker, 1)] == [b"b"]
    broker.reply([(REPLIES, b"A")])
    assert take(asking, 1) == [b"A"]
    worker.answer([(REPLIES, b"B")], STREAM, GROUP, ())
    assert take(asking, 1) == [b"B"]
    asking.close()
    worker.close()


def test_the_worker_with_the_fewest_of_its_requests_is_asked(home: Path, broker: MemoryBus) -> None:
    first, second = HostRequests(home, 1), HostRequests(home, 2)
    asking = HostFirstBus(broker, STREAM, REPLIES, home)
    for number in range(4):
        asking.post(STREAM, bytes([number]))
    assert len(read(first, 2)) == len(read(second, 2)) == 2
    asking.close()
    first.close()
    second.close()


def test_requests_of_a_run_that_is_not_served_yet_wait(worker: HostRequests, asking: HostFirstBus) -> None:
    asking.post(STREAM, b"a")
    assert worker.read(["other"], GROUP, "w", count=16, block_ms=50) == []
    assert [entry.frame for entry in read(worker, 1)] == [b"a"]


def test_a_client_asks_again_at_once_when_its_worker_is_gone(worker: HostRequests, asking: HostFirstBus, broker: MemoryBus) -> None:
    client = StreamEvaluator(asking, RUN, "c", num_actions=3, resend_after_s=1e6)
    handle = client.submit(np.zeros((2, 4), np.uint8))
    (lost,) = read(worker, 1)
    worker.close()
    assert client.result(handle, timeout_s=0.0) is None  # it hears of the end
    assert client.result(handle, timeout_s=0.0) is None  # and asks again
    (again,) = (decode(entry.frame, EvalRequest) for entry in broker.after(STREAM, "0"))
    assert (again.request_id, again.sends) == (decode(lost.frame, EvalRequest).request_id, 2)
    broker.reply([(REPLIES, encode(EvalReply(again.request_id, 7, 2, bytes(12), bytes(4))))])
    answer = client.result(handle, timeout_s=PATIENCE_S)
    assert answer is not None
    assert answer.weight_version == 7
    assert not client.lost


def test_a_client_that_is_gone_costs_nobody_else_anything(worker: HostRequests, asking: HostFirstBus, home: Path) -> None:
    gone = HostFirstBus(MemoryBus(), STREAM, keys.reply("gone"), home)
    gone.post(STREAM, b"a")
    asking.post(STREAM, b"b")
    read(worker, 2)
    gone.close()
    worker.answer([(keys.reply("gone"), b"A"), (REPLIES, b"B")], STREAM, GROUP, ())
    assert take(asking, 1) == [b"B"]
    until(lambda: worker.read([STREAM], GROUP, "w", count=1, block_ms=1) == [] and not worker.has(keys.reply("gone")), "it is forgotten")
    assert worker.connected


def test_a_client_that_reads_no_replies_is_disconnected(
    worker: HostRequests, asking: HostFirstBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(same_host, "LONGEST_QUEUE_BYTES", 1_000_000)
    asking.post(STREAM, b"a")
    read(worker, 1)
    for _ in range(3):
        worker.answer([(REPLIES, bytes(MAX_FRAME_BYTES))], STREAM, GROUP, ())
    until(lambda: worker.read([STREAM], GROUP, "w", count=1, block_ms=1) == [] and not worker.connected, "it is forgotten")


@pytest.mark.parametrize("sent", [struct.pack("<I", MAX_FRAME_BYTES + 1), struct.pack("<I", 0), struct.pack("<I", 2) + b"\xff\xfe"])
def test_a_peer_that_sends_malformed_frames_is_disconnected(worker: HostRequests, sent: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(worker.path))
        peer.sendall(sent)
        peer.setblocking(False)

        def ended() -> bool:
            worker.read([STREAM], GROUP, "w", count=1, block_ms=1)
            try:
                return peer.recv(1) == b""
            except BlockingIOError:
                return False

        until(ended, "the end of the connection")


def test_sockets_of_the_dead_are_taken_away_and_those_of_the_living_stay(worker: HostRequests, home: Path) -> None:
    dead = worker.path.with_name("1.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    other = HostRequests(home, 2)
    assert not dead.exists()
    assert worker.path.exists()
    other.close()
    assert not other.path.exists()


def test_only_its_user_may_ask(worker: HostRequests) -> None:
    assert worker.path.parent.stat().st_mode & 0o077 == 0


def test_without_a_broker_this_host_is_served_on(
    worker: HostRequests, asking: HostFirstBus, broker: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_args: object, **_options: object) -> list[Entry]:
        raise BrokerUnavailable("away")

    monkeypatch.setattr(broker, "read", lost)
    bus = ShardedBus([broker], host=worker)
    with pytest.raises(BrokerUnavailable):
        until(lambda: bus.read([STREAM], GROUP, "w", count=16, block_ms=20))
    asking.post(STREAM, b"a")
    entries: list[Entry] = []

    def came() -> bool:
        try:
            entries.extend(bus.read([STREAM], GROUP, "w", count=16, block_ms=20))
        except BrokerUnavailable:
            assert not worker.connected
        return bool(entries)

    until(came, "the request")
    bus.answer([(REPLIES, b"A")], STREAM, GROUP, [entries[0].id])
    assert take(asking, 1) == [b"A"]
    bus.close()
