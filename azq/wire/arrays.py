"""Arrays of a game record to raw little-endian bytes and back, and the bits that say which logits a request wants.

Letters: L leaves, T plies, A actions, V values per ply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from azq.errors import WireError
from azq.wire.codec import MAX_FRAME_BYTES
from azq.wire.messages import GameRecord

LARGEST_UID = 2**63 - 1
BESIDES_BYTES = 4096  # of a frame, for all that a record or its sample event holds besides the arrays


class CoreRecord(Protocol):
    """What `azq._core.Record` shows of one game."""

    @property
    def uid(self) -> int: ...
    def packed(self) -> tuple[bytes, ...]: ...  # the arrays of KINDS, then the support where policies are sparse


#: the arrays of a game by ply, in the order in which they travel
KINDS: dict[str, np.dtype[Any]] = {
    "actions": np.dtype("<u2"),
    "policies": np.dtype("<f2"),
    "root_values": np.dtype("<f4"),
    "simulations": np.dtype("<u2"),
    "weight_versions": np.dtype("<u4"),
}


def wanted_places(legal: bytes, leaves: int, num_actions: int) -> NDArray[np.intp]:
    """Places, flat in (L, A), of the entries that bits (L, ceil(A / 8)) name. Raises `ValueError` for bits of other shapes."""
    bits = np.frombuffer(legal, np.uint8).reshape(leaves, legal_bytes(num_actions))
    return np.flatnonzero(np.unpackbits(bits, axis=1, count=num_actions, bitorder="little").view(np.bool_))


def legal_bytes(num_actions: int) -> int:
    """Bytes with a bit for each action."""
    return (num_actions + 7) // 8


def pack_record(record: CoreRecord) -> GameRecord:
    """A game of the core as it travels and is journaled."""
    return GameRecord(record.uid, *record.packed())


def unsearched_record(uid: int, actions: Sequence[int], num_actions: int, value_size: int) -> GameRecord:
    """A game of plies without searches, from which nothing is learned."""
    zeros = {"root_values": 4 * value_size, "simulations": 2, "weight_versions": 4, "support": legal_bytes(num_actions)}
    return GameRecord(uid, np.array(actions, "<u2").tobytes(), **{name: bytes(width_ * len(actions)) for name, width_ in zeros.items()})


def size_of(record: GameRecord) -> int:
    """Bytes of a record's arrays. Spelt out: it is asked of thousands of games at once."""
    arrays = len(record.actions) + len(record.policies) + len(record.root_values)
    return arrays + len(record.simulations) + len(record.weight_versions) + len(record.support)


def outgrown(record: GameRecord) -> str:
    """Why a game's record or sample event is too long to be sent; empty where it is not."""
    size = size_of(record)
    if size + BESIDES_BYTES <= MAX_FRAME_BYTES:
        return ""
    return f"its record outgrew a message: {size} bytes after {len(record.actions) // 2} plies, of {MAX_FRAME_BYTES} at most"


def unpack_record(record: GameRecord, num_actions: int, value_size: int) -> dict[str, NDArray[Any]]:
    """Fresh copies of a record's arrays, as `arrays_of` has them, in this machine's byte order.

    Raises `WireError` as it does, and for a number that no game has.
    """
    if not 1 <= record.uid <= LARGEST_UID:
        raise WireError(f"game number {record.uid} is outside 1..{LARGEST_UID}")
    arrays = arrays_of(record, num_actions, value_size, f"game {record.uid}")
    return {name: array.astype(array.dtype.newbyteorder("="), copy=True) for name, array in arrays.items()}


def arrays_of(record: GameRecord, num_actions: int, value_size: int, whose: str) -> dict[str, NDArray[Any]]:
    """A record's arrays as they lie in it, under the names that `azq._core.Search.start` takes.

    actions (T,), policies (T, A), root_values (T, V), simulations (T,), weight_versions (T,). Raises `WireError` naming the array
    whose length does not agree with the number of plies, and `whose` it is.
    """
    plies, odd = divmod(len(record.actions), 2)
    if odd:
        raise WireError(f"{whose}: actions of {len(record.actions)} bytes are no whole number of plies")
    widths = {"policies": num_actions, "root_values": value_size}
    arrays = {}
    for name, kind in KINDS.items():
        data, width = getattr(record, name), widths.get(name)
        if name == "policies" and record.support:
            arrays[name] = _whole_policies(record, plies, num_actions, whose)
            continue
        if len(data) != (wanted := plies * (width or 1) * kind.itemsize):
            raise WireError(f"{whose}: {name} has {len(data)} bytes, {wanted} expected of {plies} plies; made for another game?")
        flat = np.frombuffer(data, kind)
        arrays[name] = flat.reshape(plies, width) if width else flat
    return arrays


def _whole_policies(record: GameRecord, plies: int, num_actions: int, whose: str) -> NDArray[np.float16]:
    """Sparse policies with their zeros, (T, A). Raises `WireError` where support and entries do not belong together."""
    try:
        places = wanted_places(record.support, plies, num_actions)
    except ValueError:
        raise WireError(f"{whose}: support of {len(record.support)} bytes does not fit {plies} plies; made for another game?") from None
    if 2 * len(places) != len(record.policies):
        raise WireError(f"{whose}: policies has {len(record.policies)} bytes, its support names {len(places)} entries")
    whole = np.zeros((plies, num_actions), "<f2")
    whole.ravel()[places] = np.frombuffer(record.policies, "<f2")
    return whole
