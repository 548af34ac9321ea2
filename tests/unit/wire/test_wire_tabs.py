"""Every message between gateway and tab survives the wire, and nothing else gets through it."""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.errors import WireError
from azq.wire import tabs
from azq.wire.codec import printable
from azq.wire.tabs import MAX_TAB_BYTES, TAB_SCHEMA, Bye, FromGateway, FromTab, GamesComplete, Hello, TabGame, TabProgress

OF_TAB, OF_GATEWAY = get_args(FromTab), get_args(FromGateway)
PLAIN = {
    int: st.integers(1, 100),
    float: st.floats(0.0, 1e6),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type, within its limits."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if kind in PLAIN:
        return PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, tabs.TabMessage):
        return messages(kind)
    if kind == tabs.Setting:
        return st.one_of(PLAIN[bool], PLAIN[int], PLAIN[str])
    if get_origin(kind) is dict:
        return st.dictionaries(*map(values, get_args(kind)), max_size=3)
    return st.lists(values(get_args(kind)[0]), max_size=3).map(tuple)


def messages(kind: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("kind", [*OF_TAB, *OF_GATEWAY], ids=lambda kind: kind.__name__)
def test_round_trip(kind):
    decode = tabs.from_tab if kind in OF_TAB else tabs.from_gateway

    @settings(max_examples=40, deadline=None)
    @given(messages(kind))
    def check(message):
        assert decode(tabs.encode_tab(message)) == printable(message)

    check()


def test_a_frame_is_plain_msgpack():
    assert msgspec.msgpack.decode(tabs.encode_tab(Hello("4.0", "key"))) == [TAB_SCHEMA, ["Hello", "4.0", "key", "", "", "", ""]]
    assert msgspec.msgpack.decode(tabs.encode_tab(TabProgress(1, 2, 3, 4)))[1][0] == "Progress"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_frame_is_a_wire_error_or_a_message(data):
    kind = data.draw(st.sampled_from(OF_TAB))
    frame = bytearray(tabs.encode_tab(data.draw(messages(kind))))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        assert isinstance(tabs.from_tab(bytes(frame)), FromTab)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_cut_frame_and_random_bytes_are_refused(data):
    frame = tabs.encode_tab(data.draw(messages(data.draw(st.sampled_from(OF_TAB)))))
    with pytest.raises(WireError):
        tabs.from_tab(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with contextlib.suppress(WireError):
        assert isinstance(tabs.from_tab(data.draw(st.binary(max_size=100))), FromTab)


GAME = TabGame(1, b"", b"", b"", b"", b"", b"")


@pytest.mark.parametrize(
    "message",
    [
        Hello("x" * 65),
        Hello("4", token="x" * 257),
        GamesComplete((GAME,) * 65),
        GamesComplete((msgspec.structs.replace(GAME, uid=0),)),
        GamesComplete((msgspec.structs.replace(GAME, uid=2**53),)),
        GamesComplete((msgspec.structs.replace(GAME, ticket=b"x" * 65),)),
        TabProgress(-1, 0, 0, 0),
        TabProgress(0, 0, 0, 0, tuple(range(1, 5000))),
        TabProgress(0, 0, 0, 0, cpu=math.inf),
        TabProgress(0, 0, 0, 0, cpu=math.nan),
        tabs.Accepted((1,)),  # what only a gateway says
    ],
)
def test_what_exceeds_its_limits_is_refused(message):
    with pytest.raises(WireError, match="no message between gateway and tab"):
        tabs.from_tab(tabs.encode_tab(message))


def test_a_long_frame_is_refused_unread():
    with pytest.raises(WireError, match=f"exceeds the limit of {MAX_TAB_BYTES}"):
        tabs.from_tab(b"\0" * (MAX_TAB_BYTES + 1))


def test_another_schema_is_named():
    with pytest.raises(WireError, match="schema 1, this azq speaks 4"):
        tabs.from_tab(msgspec.msgpack.encode((1, Bye())))
