"""What breaks, and what the inference stream makes of it, on a real broker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from inference_doubles import CONFIG, RUN, SPEC, ask, observations, same_bits, serving, weights
from waiting import PATIENCE_S, until

from azq.errors import EvaluatorFailure
from azq.nets import NetSpec
from azq.wire import codec, keys
from azq.wire.messages import SCHEMA, EvalReply, EvalRequest

STREAM = keys.eval_stream(RUN)


def test_a_dead_servers_requests_are_claimed_by_another(connect, shelf):
    shelf.publish(1, weights(1))
    client, data = connect.client(resend_after_s=60.0), connect.data()
    dead = connect.server(shelf, "inference@dead:1", CONFIG.model_copy(update={"deadline_ms": 3_600_000.0}))
    handle = client.submit(observations(4))
    until(lambda: (dead.step(1), len(dead._pending) == 1)[1], "the first server holds the request")
    with serving(connect.server(shelf, "inference@alive:2")):
        answer = client.result(handle, timeout_s=PATIENCE_S)
        assert answer is not None
        assert len(answer.logits) == 4
        until(lambda: data.length(STREAM) == 0, "nothing is left pending")
    assert client.resent == 0


def test_a_flush_of_the_data_plane_heals(connect, shelf, broker):
    shelf.publish(1, weights(1))
    client, data = connect.client(resend_after_s=0.2), connect.data()
    server = connect.server(shelf)
    with serving(server):
        ask(client, observations(4))
    handle = client.submit(observations(8))
    data.delete(STREAM, keys.reply("c1"))  # as after a restart without a file: requests, group and replies are gone
    with serving(server):
        answer = client.result(handle, timeout_s=PATIENCE_S)
        assert answer is not None
        assert len(answer.logits) == 8
    assert client.resent >= 1


def frame_of(**changes):
    packed = observations(4)
    fields: dict[str, Any] = {"request_id": 5, "client": "raw", "weight_version": 0, "count": 4, "packed": packed.tobytes(), "sent_ms": 0}
    return codec.encode(EvalRequest(**(fields | changes)))


BAD_FOR_NOBODY = {
    "noise": b"\x93not a frame",
    "empty": b"",
    "other schema": msgspec.msgpack.encode((SCHEMA + 1, EvalRequest(5, "raw", 0, 1, b"", 0))),
    "other message": codec.encode(EvalReply(5, 0, 0, b"", b"")),
    "no client": frame_of(client=""),
}
BAD_FOR_ITS_CLIENT = {
    "count and bytes disagree": (frame_of(count=5), "not 5 leaves of 11 bytes"),
    "other game": (frame_of(packed=bytes(4 * 9)), "holds 36 bytes"),
    "no leaves": (frame_of(count=0, packed=b""), "0 leaves"),
    "negative": (frame_of(count=-4), "leaves"),
    "too many": (frame_of(count=257, packed=bytes(257 * SPEC.packed_size)), "exceeds inference.max_batch = 256"),
}


@pytest.mark.parametrize("frame", BAD_FOR_NOBODY.values(), ids=BAD_FOR_NOBODY)
def test_frames_that_do_not_decode_are_dead_lettered(connect, shelf, frame):
    shelf.publish(1, weights(1))
    client, data, server = connect.client(), connect.data(), connect.server(shelf)
    data.publish(STREAM, frame)
    with serving(server):
        assert len(ask(client, observations(4)).logits) == 4
        until(lambda: data.length(STREAM) == 0, "the bad frame is gone")
    assert server.stats.dead_letters == 1
    assert data.length(keys.DEAD) == 1


@pytest.mark.parametrize(("frame", "reason"), BAD_FOR_ITS_CLIENT.values(), ids=BAD_FOR_ITS_CLIENT)
def test_bad_requests_are_dead_lettered_and_answered(connect, shelf, frame, reason):
    shelf.publish(1, weights(1))
    client, data, server = connect.client(), connect.data(), connect.server(shelf)
    data.publish(STREAM, frame)
    with serving(server):
        assert len(ask(client, observations(4)).logits) == 4
        (answer,) = data.take_replies(keys.reply("raw"), timeout_s=PATIENCE_S)
    reply = codec.decode(answer, EvalReply)
    assert (reply.request_id, reply.count) == (5, 0)
    assert reason in reply.error
    assert data.length(keys.DEAD) == 1


OTHER_SPEC = NetSpec(2, 6, 7, 0, 9, 1)
BAD_WEIGHTS = {
    "truncated": lambda: weights(2, version=2)[:-7],
    "noise": lambda: b"no weights at all",
    "nan": lambda: weights(2, version=2, spoil="policy.weight"),
    "other game": lambda: weights(2, version=2, spec=OTHER_SPEC),
}


@pytest.mark.parametrize("make", BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
def test_unusable_weights_are_refused_and_the_last_good_ones_stay(connect, shelf, make, capsys):
    shelf.publish(1, weights(1))
    client, packed, server = connect.client(), observations(16), connect.server(shelf)
    with serving(server):
        before = ask(client, packed)
        shelf.publish(2, make())
        until(lambda: "weights_refused" in capsys.readouterr().out, "the refusal is logged")
        assert same_bits(ask(client, packed), before)
        with pytest.raises(EvaluatorFailure, match=r"weights|tensor"):
            ask(client, packed, weight_version=2)
        shelf.publish(3, weights(3, version=3))
        until(lambda: server.versions == {RUN: 3}, "the next good version is served")
        assert ask(client, packed).weight_version == 3
