"""Messages to bytes and back: msgpack with a schema number, a checksum and a size limit, one error for all that does not decode.

The checksum is there because much of a message has no wrong value: a game with one bit of a policy changed is still a game.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import msgspec

from azq import logs
from azq.errors import WireError
from azq.wire.messages import DENSE, READABLE, SCHEMA, UNCHECKED, Message

MAX_FRAME_BYTES = 8 * 1024 * 1024
ENVELOPE_BYTES = 1024  # of a frame beside its arrays, the longest name of a client included

M = TypeVar("M", bound=Message)
N = TypeVar("N", bound=Message)
T = TypeVar("T")

log = logs.get(__name__)
_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(tuple[int, bytes, msgspec.Raw])
_parts_of_first = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])  # schema 1 had no checksum


class _Numbered(msgspec.Struct, array_like=True, tag="GameRecord"):
    """Of a `GameRecord` no more than its number."""

    uid: int


# Of a `SampleEvent` no more than what leads to its game's number.
_event = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_record = msgspec.msgpack.Decoder(_Numbered)


def encode(message: Message) -> bytes:
    """The frame of a message; `WireError` when it exceeds `MAX_FRAME_BYTES` or holds what msgpack cannot (integers beyond 64 bits)."""
    try:
        body = _encoder.encode(message)
    except (OverflowError, UnicodeEncodeError) as error:
        raise WireError(f"{type(message).__name__} does not encode: {error}; its sender made a mistake") from None
    frame = _encoder.encode((SCHEMA, checksum(body, SCHEMA), msgspec.Raw(body)))
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(f"{type(message).__name__} of {len(frame)} bytes exceeds {MAX_FRAME_BYTES}; send fewer leaves per message")
    return frame


def decode(frame: bytes, kind: type[M]) -> M:
    """The message in a frame; `WireError` names what is wrong with it."""
    message: M = _decode(frame, kind, kind.__name__)
    return message


def decode_either(frame: bytes, first: type[M], second: type[N]) -> M | N:
    """The message of one of two kinds in a frame, as its tag says; `WireError` where it is of neither."""
    message: M | N = _decode(frame, first | second, f"{first.__name__} or {second.__name__}")
    return message


def _decode(frame: bytes, kind: Any, name: str) -> Any:
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(f"frame of {len(frame)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    try:
        schema, digest, body = _split(frame)
        if schema not in READABLE:
            raise WireError(f"{name} has schema {schema}, this azq speaks {SCHEMA}; run one version of azq on all hosts")
        if digest != (None if schema == UNCHECKED else checksum(body, schema)):
            raise WireError(f"not a {name}: its checksum does not match; it was damaged on its way")
        return printable(msgspec.msgpack.decode(body, type=kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a {name}: {error}") from None


@cache
def _fields_with_text(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    plain = {int, float, bool, bytes}
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.type not in plain)


def printable(value: T) -> T:
    """A value from a machine, all texts in it, keys included, without what a terminal obeys: control and format characters.

    White space becomes a blank, all else U+FFFD.
    """
    cleaned: Any = value
    if isinstance(value, str):
        cleaned = value if value.isprintable() else "".join(map(_shown, value))
    elif isinstance(value, msgspec.Struct):  # with care for time: each request for evaluations comes by here
        for name in _fields_with_text(type(value)):
            old = getattr(value, name)
            if not (type(old) is str and old.isprintable()) and (new := printable(old)) != old:
                cleaned = msgspec.structs.replace(cleaned, **{name: new})
    elif isinstance(value, tuple):
        cleaned = tuple(map(printable, value))
    elif isinstance(value, dict):
        cleaned = {printable(name): printable(item) for name, item in value.items()}
    return cleaned  # type: ignore[no-any-return]


def _shown(letter: str) -> str:
    if letter.isprintable() or unicodedata.category(letter) == "Zs":
        return letter
    return " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}"


@contextmanager
def skip_unreadable(place: str) -> Iterator[None]:
    """Leaves out what does not decode; the log says where it is."""
    try:
        yield
    except WireError as error:
        log.warning("unreadable", place=place, reason=str(error))


def checksum(body: bytes | msgspec.Raw, schema: int) -> bytes:
    """CRC-32 of a message's bytes, little-endian; since schema 3 begun with the schema's number, so that none passes for another."""
    return zlib.crc32(body, 0 if schema <= DENSE else schema).to_bytes(4, "little")


def body_of(frame: bytes) -> msgspec.Raw:
    """The message's bytes in a frame that was checked before; raises `msgspec.DecodeError`."""
    return _split(frame)[2]


def uid_of(frame: bytes) -> int:
    """The game number of a `SampleEvent` frame, also of a damaged one where that much can still be read; 0 elsewhere."""
    try:
        return _record.decode(_event.decode(body_of(frame))[1]).uid
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def _split(frame: bytes) -> tuple[int, bytes | None, msgspec.Raw]:
    try:
        return _parts.decode(frame)
    except msgspec.ValidationError:
        schema, body = _parts_of_first.decode(frame)
        return schema, None, body


def answer_bytes(leaves: int, num_actions: int, value_size: int) -> int:
    """A bound on the frame of an answer to L `leaves`: float16 logits (L, A) and values (L, V)."""
    return ENVELOPE_BYTES + 2 * leaves * (num_actions + value_size)


def most_leaves(packed_size: int, num_actions: int, value_size: int) -> int:
    """The most leaves whose request, packed observations (L, P), and whose answer each fit a frame; 0 where not even one does."""
    return (MAX_FRAME_BYTES - ENVELOPE_BYTES) // max(packed_size, 2 * (num_actions + value_size))
