"""Requests and replies whose counts and bytes do not agree, by chance or by malice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_broker import MemoryBus

from azq import games
from azq.bus.base import Entry
from azq.errors import WireError
from azq.inference.ask.client import StreamEvaluator
from azq.inference.serve.requests import MAX_CLIENT_NAME, read_request
from azq.nets import NetSpec
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import EvalReply, EvalRequest

SPEC = NetSpec.of(games.load("tic_tac_toe"))
COUNTS = st.one_of(st.integers(-3, 70), st.integers(-(2**63), 2**63 - 1))


@settings(max_examples=300, deadline=None)
@given(COUNTS, st.integers(0, 70 * 10), st.text(max_size=300), st.integers(-(2**63), 2**63 - 1))
def test_a_request_is_refused_or_has_its_leaves(count: int, size: int, client: str, version: int) -> None:
    frame = encode(EvalRequest(1, client, version, count, bytes(size), 0))
    try:
        pending = read_request("r", Entry("s", "1-0", frame), SPEC, 64, 0.0)
    except WireError:
        return
    assert pending.packed.shape == (count, SPEC.packed_size)
    assert 0 < count <= 64
    assert 0 < len(client) <= MAX_CLIENT_NAME


@settings(max_examples=200, deadline=None)
@given(COUNTS, st.binary(max_size=60), st.binary(max_size=10), st.binary(max_size=40))
def test_a_reply_is_passed_over_or_has_its_shapes(count: int, logits: bytes, values: bytes, raw: bytes) -> None:
    bus = MemoryBus()
    client = StreamEvaluator(bus, "r", "c", num_actions=9)
    handle = client.submit(np.zeros((2, SPEC.packed_size), np.uint8))
    bus.reply([(keys.reply("c"), encode(EvalReply(handle, 1, count, logits, values))), (keys.reply("c"), raw)])
    evaluation = client.result(handle, timeout_s=0.0)
    if evaluation is not None:
        assert (evaluation.logits.shape, evaluation.values.shape) == ((2, 9), (2, 1))
