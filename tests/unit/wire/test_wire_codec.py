"""Every message survives the wire, and nothing else gets through it."""

from __future__ import annotations

import contextlib
import inspect
import tracemalloc
import unicodedata
import zlib
from types import UnionType
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.errors import WireError
from azq.wire import machines, messages
from azq.wire.codec import MAX_FRAME_BYTES, answer_bytes, body_of, checksum, decode, decode_either, encode, most_leaves, printable, uid_of
from azq.wire.kinds import Kind
from azq.wire.messages import (
    DENSE,
    SCHEMA,
    UNCHECKED,
    DeadLetter,
    EvalReply,
    EvalRequest,
    EvalRound,
    Fleet,
    GameRecord,
    Message,
    SampleEvent,
)

MODULES = (messages, machines)
KINDS = [
    kind
    for module in MODULES
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if kind.__module__ == module.__name__ and issubclass(kind, Message) and kind is not Message
]

ESCAPES = "\x1b]0;x\x07 \x9b31m \u202e \r\n\x00\u2028"  # a terminal's title, colours, the direction of writing, lines
TEXTS = st.just(ESCAPES) | st.text(max_size=20)
numbers = st.integers(0, 2**53)
floats = st.floats(allow_nan=False, allow_infinity=False)


def strategy_for(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's type."""
    plain = {int: numbers, float: floats, str: TEXTS, bytes: st.binary(max_size=40), bool: st.booleans()}
    if kind in plain:
        return plain[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return messages_of(kind)
    if kind is Kind:
        return st.sampled_from(Kind)
    if isinstance(kind, UnionType):
        parts: list[st.SearchStrategy[Any]] = [st.none() if part is type(None) else strategy_for(part) for part in kind.__args__]
        return st.one_of(*parts)
    origin, arguments = kind.__origin__, kind.__args__
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        return st.dictionaries(*(strategy_for(argument) for argument in arguments), max_size=3)
    if arguments[-1] is Ellipsis:
        return st.lists(strategy_for(arguments[0]), max_size=4).map(tuple)
    return st.tuples(*(strategy_for(argument) for argument in arguments))


def messages_of(kind: type[msgspec.Struct]) -> st.SearchStrategy:
    return st.builds(kind, **{field.name: strategy_for(field.type) for field in msgspec.structs.fields(kind)})


def test_all_kinds_are_here():
    assert len(KINDS) >= 15
    assert {"EvalRequest", "EvalReply", "GameRecord", "SampleEvent", "Job", "Heartbeat"} <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_round_trip(kind):
    @settings(max_examples=30, deadline=None)
    @given(messages_of(kind))
    def check(message):
        got = decode(encode(message), kind)
        assert got == printable(message)
        shown = texts_in(msgspec.to_builtins(got))
        assert not [letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")], "no screen obeys it"

    check()


def texts_in(value: Any) -> str:
    """All texts of a message, whatever their fields are called."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return value if isinstance(value, str) else "".join(map(texts_in, value)) if isinstance(value, list | tuple) else ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("héllo wörld 漢字 ½ 🙂", None),
        ("a\u00a0b", None),
        ("a\nb\tc", "a b c"),
        ("\x1b[31m", "�[31m"),
        ("\u202egnp.exe", "�gnp.exe"),
        ("", None),
    ],
)
def test_what_can_be_shown_stays_and_what_a_terminal_obeys_does_not(text, shown):
    assert printable(text) == (text if shown is None else shown)
    assert printable({text: (text, 1)}) == {printable(text): (printable(text), 1)}


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_cut_or_lengthened_frame_is_refused(data):
    kind = data.draw(st.sampled_from(KINDS))
    frame = encode(data.draw(messages_of(kind)))
    with pytest.raises(WireError, match=kind.__name__):
        decode(frame[: data.draw(st.integers(0, len(frame) - 1))], kind)
    with pytest.raises(WireError):
        decode(frame + b"\0", kind)


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, -1, 2**40])
def test_another_schema_is_named(schema):
    for frame in ((schema, GameRecord(1)), (schema, b"1234", GameRecord(1))):
        with pytest.raises(WireError, match=f"GameRecord has schema {schema}, this azq speaks {SCHEMA}"):
            decode(msgspec.msgpack.encode(frame), GameRecord)


def test_frames_of_the_first_schema_are_read():
    assert decode(msgspec.msgpack.encode((UNCHECKED, GameRecord(7))), GameRecord) == GameRecord(7)
    with pytest.raises(WireError, match="checksum"):
        decode(msgspec.msgpack.encode((SCHEMA, GameRecord(7))), GameRecord)
    with pytest.raises(WireError, match="checksum"):
        decode(msgspec.msgpack.encode((UNCHECKED, b"1234", GameRecord(7))), GameRecord)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_changed_byte_passes(data):
    """CRC-32 finds every error of at most 32 bits in a row, so a changed byte is certain to be found."""
    kind = data.draw(st.sampled_from(KINDS))
    frame = bytearray(encode(data.draw(messages_of(kind))))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        decode(bytes(frame), kind)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_under_a_right_checksum_is_a_wire_error_or_a_message(data):
    kind = data.draw(st.sampled_from(KINDS))
    body = bytearray(msgspec.msgpack.encode(data.draw(messages_of(kind))))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        assert isinstance(decode(forged(bytes(body)), kind), kind)


def forged(body: bytes) -> bytes:
    return msgspec.msgpack.encode((SCHEMA, checksum(body, SCHEMA))).replace(b"\x92", b"\x93", 1) + body


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_huge_declared_length_costs_nothing(kind):
    """Bytes, text, arrays and maps that say they hold four thousand million, in place of a message and of its first field."""
    tracemalloc.start()
    try:
        for size in (b"\xc6", b"\xdb", b"\xdd", b"\xdf"):
            for start in (b"", b"\x9f" + msgspec.msgpack.encode(kind.__name__)):
                with pytest.raises(WireError):
                    decode(forged(start + size + b"\xff" * 4), kind)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_one_kind_is_not_another(kind):
    other = EvalReply(1, 2, 3, b"", b"") if kind is not EvalReply else GameRecord(1)
    with pytest.raises(WireError, match=f"not a {kind.__name__}"):
        decode(encode(other), kind)


def test_the_tag_tells_which_of_two_kinds_it_is():
    for message in (DeadLetter("a", "1-0", "b", b"", 1), GameRecord(7)):
        assert decode_either(encode(message), DeadLetter, GameRecord) == message
    with pytest.raises(WireError, match="not a DeadLetter or EvalReply"):
        decode_either(encode(GameRecord(7)), DeadLetter, EvalReply)


def test_a_message_may_be_as_large_as_the_limit_and_no_larger():
    assert MAX_FRAME_BYTES == 8_388_608
    around = len(encode(EvalRequest(1, "c", 0, 1, bytes(100_000), 0))) - 100_000
    largest = EvalRequest(1, "c", 0, 1, bytes(MAX_FRAME_BYTES - around), 0)
    assert len(encode(largest)) == MAX_FRAME_BYTES
    assert decode(encode(largest), EvalRequest) == largest
    with pytest.raises(WireError, match="EvalRequest of"):
        encode(EvalRequest(1, "c", 0, 1, bytes(MAX_FRAME_BYTES - around + 1), 0))
    with pytest.raises(WireError, match="exceeds the limit"):
        decode(bytes(MAX_FRAME_BYTES + 1), EvalRequest)


def test_a_frame_looks_as_other_versions_expect_it():
    body = msgspec.msgpack.encode(GameRecord(7))
    assert encode(GameRecord(7)) == msgspec.msgpack.encode((SCHEMA, zlib.crc32(body, SCHEMA).to_bytes(4, "little"), msgspec.Raw(body)))
    assert bytes(body_of(encode(GameRecord(7)))) == body
    assert bytes(body_of(msgspec.msgpack.encode((UNCHECKED, GameRecord(7))))) == body


def test_frames_of_the_second_schema_have_a_plain_checksum():
    body = msgspec.msgpack.encode(GameRecord(7))
    frame = msgspec.msgpack.encode((DENSE, zlib.crc32(body).to_bytes(4, "little"), msgspec.Raw(body)))
    assert decode(frame, GameRecord) == GameRecord(7)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            ("Fleet", "0.1.0", "", "redis://a", "redis", 20.0, 2.0, 8.0, 5, (), 3, "all runs have ended", "first", ("first",)),
            Fleet("0.1.0", "", "redis://a", "redis", 20.0, 2.0, 8.0, 5, (), 3, "all runs have ended", "first", ("first",)),
        ),
        (("EvalRound", 3, 5, 7, True), EvalRound(3, 5, 7)),
    ],
    ids=["a setting that went keeps its place", "a last field that went"],
)
def test_what_the_version_before_wrote_is_read(written, read):
    """Daemons and machines are upgraded one after the other."""
    assert decode(forged(msgspec.msgpack.encode(written)), type(read)) == read


def test_the_number_of_a_game_is_read_from_frames_of_each_schema_and_from_damaged_ones():
    event = SampleEvent(GameRecord(7, b"\1\0"), (1.0, -1.0), "w1", 1)
    whole = encode(event)
    damaged = whole[:4] + bytes([whole[4] ^ 1]) + whole[5:]
    with pytest.raises(WireError, match="checksum"):
        decode(damaged, SampleEvent)
    assert [uid_of(frame) for frame in (whole, msgspec.msgpack.encode((UNCHECKED, event)), damaged)] == [7, 7, 7]
    assert [uid_of(frame) for frame in (b"", b"garbage", whole[:-1], encode(GameRecord(7)))] == [0, 0, 0, 0]


def test_text_that_is_no_utf8_is_refused():
    frame = forged(msgspec.msgpack.encode(DeadLetter("s", "1-0", "xx", b"", 1)).replace(b"xx", b"\xff\xfe"))
    with pytest.raises(WireError, match="not a DeadLetter"):
        decode(frame, DeadLetter)


@pytest.mark.parametrize("message", [GameRecord(2**64), DeadLetter("\ud800", "1-0", "x", b"", 1)])
def test_what_msgpack_cannot_hold_is_refused_when_sent(message):
    with pytest.raises(WireError, match="does not encode"):
        encode(message)


def test_deeply_nested_bytes_are_refused():
    for frame in (b"\x92\x01" + b"\x91" * 100_000, b"\x91" * 100_000, forged(b"\x91" * 100_000)):
        with pytest.raises(WireError):
            decode(frame, SampleEvent)


@pytest.mark.parametrize("frame", [b"", b"\xc0", b"\x91\x01", b"\x93\x01\xc0\xc0", b"\x92\xa1a\xc0", b"text", b"\x80"])
def test_other_shapes_are_refused(frame):
    with pytest.raises(WireError):
        decode(frame, GameRecord)


def test_an_answer_holds_two_bytes_for_each_logit_and_value():
    assert answer_bytes(0, 9, 1) == 1024
    assert answer_bytes(1, 9, 1) == 1024 + 20
    assert answer_bytes(512, 8191, 1) == 8_389_632  # over 8 MiB: 8,388,608


@pytest.mark.parametrize(
    ("packed_size", "actions", "values", "leaves"),
    [
        (1, 8191, 1, 511),  # the answer decides
        (16_384, 9, 1, 511),  # the request does
        (8, 2, 2, 1_048_448),  # both alike
        (8_387_584, 9, 1, 1),
        (8_387_585, 9, 1, 0),
        (1, 4_193_790, 2, 1),
        (1, 4_193_791, 2, 0),
    ],
)
def test_request_and_answer_of_the_most_leaves_each_fit(packed_size, actions, values, leaves):
    assert most_leaves(packed_size, actions, values) == leaves
