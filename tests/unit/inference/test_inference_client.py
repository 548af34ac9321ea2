"""The stream evaluator against a bus in memory, with a clock that is set forward by hand."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import numpy as np
import pytest
from inference_doubles import RUN
from memory_broker import MemoryBus

from azq.errors import EvaluationRefused, EvaluatorFailure, WireError
from azq.inference.ask.client import StreamEvaluator
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest

STREAM = keys.eval_stream(RUN)
REPLIES = keys.reply("c1")
ACTIONS = 3


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        self.now_s += 1e-3
        return self.now_s


@pytest.fixture
def bus():
    return MemoryBus()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(bus, clock):
    return StreamEvaluator(bus, RUN, "c1", num_actions=ACTIONS, max_in_flight=2, resend_after_s=5.0, clock_s=clock)


def sent(bus: MemoryBus) -> list[EvalRequest]:
    return [codec.decode(entry.frame, EvalRequest) for entry in bus.after(STREAM, "0")]


def answer(bus, request, *, version=1, error="", fill=0.5, count=None):
    count = request.count if count is None else count
    logits = np.full((count, ACTIONS), fill, np.float16).tobytes()
    values = np.full((count, 1), -fill, np.float16).tobytes()
    bus.reply([(REPLIES, codec.encode(EvalReply(request.request_id, version, count, logits, values, error)))])


def submit(client, count=2):
    return client.submit(np.full((count, 4), count, np.uint8))


def test_a_request_carries_what_was_submitted(bus, client):
    packed = np.arange(8, dtype=np.uint8).reshape(2, 4)
    client.submit(packed, weight_version=9)
    packed[:] = 0  # the caller may reuse the array at once
    (request,) = sent(bus)
    assert (request.client, request.weight_version, request.count) == ("c1", 9, 2)
    assert request.packed == bytes(range(8))


def test_an_answer_is_read_without_a_copy_and_given_once(bus, client):
    handle = submit(client)
    assert client.result(handle, timeout_s=0.0) is None
    answer(bus, sent(bus)[0], version=4)
    evaluation = client.result(handle, timeout_s=0.0)
    assert evaluation.weight_version == 4
    assert evaluation.logits.tolist() == [[0.5] * ACTIONS] * 2
    assert evaluation.values.tolist() == [[-0.5]] * 2
    assert evaluation.logits.base is not None
    with pytest.raises(KeyError):
        client.result(handle, timeout_s=0.0)


def test_credits_bound_what_is_in_the_stream(bus, client):
    handles = [submit(client, count) for count in (1, 2, 3)]
    assert client.in_flight == len(sent(bus)) == 2
    answer(bus, sent(bus)[0])
    assert client.result(handles[2], timeout_s=0.0) is None
    assert client.result(handles[2], timeout_s=0.0) is None
    assert [request.count for request in sent(bus)] == [1, 2, 3]
    assert len(client.result(handles[0], timeout_s=0.0).logits) == 1


def test_an_overdue_request_is_sent_again_under_its_id(bus, client, clock):
    handle = submit(client)
    clock.now_s += 4.9
    assert client.result(handle, timeout_s=0.0) is None
    assert len(sent(bus)) == 1
    clock.now_s += 0.2
    assert client.result(handle, timeout_s=0.0) is None
    first, second = sent(bus)
    assert second == msgspec.structs.replace(first, sends=2)
    assert client.resent == 1
    answer(bus, first)
    answer(bus, second)
    assert client.result(handle, timeout_s=0.0) is not None
    late = submit(client)
    assert client.result(late, timeout_s=0.0) is None
    assert client.in_flight == 1


def test_patience_is_learned_from_answers_and_doubles(bus, client, clock):
    first = submit(client)
    clock.now_s += 0.01
    answer(bus, sent(bus)[0])
    assert client.result(first, timeout_s=0.0) is not None
    handle = submit(client)
    for waited_s, sends in ((0.9, 1), (0.2, 2), (1.8, 2), (0.3, 3), (3.9, 3), (0.2, 4), (4.9, 4), (0.2, 5), (5.1, 6)):
        clock.now_s += waited_s
        client.result(handle, timeout_s=0.0)
        assert len(sent(bus)) == 1 + sends, waited_s


def test_a_broker_that_is_away_is_waited_for(bus, client):
    bus.down = True
    handle = submit(client)
    assert client.result(handle, timeout_s=0.02) is None
    bus.down = False
    assert sent(bus) == []
    assert client.result(handle, timeout_s=0.02) is None
    (request,) = sent(bus)
    answer(bus, request)
    assert client.result(handle, timeout_s=0.0) is not None
    assert client.resent == 0


def test_a_named_failure_raises(bus, client):
    handle = submit(client)
    answer(bus, sent(bus)[0], error="no weights version 9", count=0)
    with pytest.raises(EvaluatorFailure, match="inference worker: no weights version 9"):
        client.result(handle, timeout_s=0.0)


def test_a_final_one_says_that_asking_again_is_of_no_use(bus, client):
    handle = submit(client)
    (request,) = sent(bus)
    bus.reply([(REPLIES, codec.encode(EvalReply(request.request_id, 0, 0, b"", b"", "it kills", True)))])
    with pytest.raises(EvaluationRefused, match="inference worker: it kills"):
        client.result(handle, timeout_s=0.0)


@pytest.mark.parametrize("frame", [b"", b"noise", codec.encode(EvalRequest(1, "c1", 0, 1, b"", 0))])
def test_replies_that_do_not_decode_are_passed_over(bus, client, frame):
    handle = submit(client)
    bus.reply([(REPLIES, frame)])
    answer(bus, sent(bus)[0], count=5)  # another number of leaves than asked for
    assert client.result(handle, timeout_s=0.0) is None
    answer(bus, sent(bus)[0])
    assert client.result(handle, timeout_s=0.0) is not None


def replied(bus, request, logits):
    bus.reply([(REPLIES, codec.encode(EvalReply(request.request_id, 1, 2, np.array(logits, np.float16).tobytes(), bytes(4))))])


def test_logits_of_legal_actions_alone_come_to_their_places(bus, client):
    handle = client.submit(np.zeros((2, 4), np.uint8), legal=np.array([[0b100], [0b001]], np.uint8))
    (request,) = sent(bus)
    assert request.legal == bytes([0b100, 0b001])
    replied(bus, request, [1.0, 2.0, 3.0])  # of other shapes
    assert client.result(handle, timeout_s=0.0) is None
    replied(bus, request, [1.0, 2.0])
    assert client.result(handle, timeout_s=0.0).logits.tolist() == [[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]]


@pytest.mark.parametrize("legal", [np.array([[0b111], [0b011]], np.uint8), np.zeros((2, 0), np.uint8)])
def test_where_most_actions_are_legal_or_nobody_says_all_are_asked_for(bus, client, legal):
    handle = client.submit(np.zeros((2, 4), np.uint8), legal=legal)
    (request,) = sent(bus)
    assert request.legal == b""
    answer(bus, request)
    assert client.result(handle, timeout_s=0.0) is not None


def test_too_many_leaves_for_a_frame_are_said_at_once(bus, client):
    with pytest.raises(WireError, match="send fewer leaves"):
        client.submit(np.zeros((2_000_000, 5), np.uint8))
    assert client.in_flight == 0
    assert sent(bus) == []


def test_self_play_needs_no_torch():
    code = "import sys, azq.inference.ask.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
