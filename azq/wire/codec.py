"""Messages to bytes and back: msgpack with a schema number and a size limit, one error for all that does not decode."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from azq.errors import WireError
from azq.wire.messages import SCHEMA, Message

MAX_FRAME_BYTES = 8 * 1024 * 1024

M = TypeVar("M", bound=Message)

_encoder = msgspec.msgpack.Encoder()
_peek = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def encode(message: Message) -> bytes:
    """The frame of a message; `WireError` when it exceeds `MAX_FRAME_BYTES` or holds what msgpack cannot (integers beyond 64 bits)."""
    try:
        frame = _encoder.encode((SCHEMA, message))
    except (OverflowError, UnicodeEncodeError) as error:
        raise WireError(f"{type(message).__name__} does not encode: {error}; its sender made a mistake") from None
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(f"{type(message).__name__} of {len(frame)} bytes exceeds {MAX_FRAME_BYTES}; send fewer leaves per message")
    return frame


def decode(frame: bytes, kind: type[M]) -> M:
    """The message in a frame; `WireError` names what is wrong with it."""
    if len(frame) > MAX_FRAME_BYTES:
        raise WireError(f"frame of {len(frame)} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    try:
        schema, body = _peek.decode(frame)
        if schema != SCHEMA:
            raise WireError(f"{kind.__name__} has schema {schema}, this azq speaks {SCHEMA}; run one version of azq on all hosts")
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a {kind.__name__}: {error}") from None
