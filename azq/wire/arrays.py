"""Arrays of a game record to raw little-endian bytes and back.

Letters: T plies, A actions, V values per ply.
"""

from __future__ import annotations

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
    def packed(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...  # actions, policies, root values, simulations, weight versions


def pack_record(record: CoreRecord) -> GameRecord:
    """A game of the core as it travels and is journaled."""
    return GameRecord(record.uid, *record.packed())


def outgrown(record: GameRecord) -> str:
    """Why a game's record or sample event is too long to be sent; empty where it is not."""
    size = sum(len(part) for part in (record.actions, record.policies, record.root_values, record.simulations, record.weight_versions))
    if size + BESIDES_BYTES <= MAX_FRAME_BYTES:
        return ""
    return f"its record outgrew a message: {size} bytes after {len(record.actions) // 2} plies, of {MAX_FRAME_BYTES} at most"


def unpack_record(record: GameRecord, num_actions: int, value_size: int) -> dict[str, NDArray[Any]]:
    """A record's arrays under the names that `azq._core.Search.start` takes; each is a fresh copy.

    actions (T,), policies (T, A), root_values (T, V), simulations (T,), weight_versions (T,). Raises `WireError` naming the array
    whose length does not agree with the number of plies.
    """
    if not 1 <= record.uid <= LARGEST_UID:
        raise WireError(f"game number {record.uid} is outside 1..{LARGEST_UID}")
    plies, odd = divmod(len(record.actions), 2)
    if odd:
        raise WireError(f"game {record.uid}: actions of {len(record.actions)} bytes are no whole number of plies")
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "actions": ("<u2", (plies,)),
        "policies": ("<f2", (plies, num_actions)),
        "root_values": ("<f4", (plies, value_size)),
        "simulations": ("<u2", (plies,)),
        "weight_versions": ("<u4", (plies,)),
    }
    return {name: _array(record, name, *kind) for name, kind in shapes.items()}


def _array(record: GameRecord, name: str, kind: str, shape: tuple[int, ...]) -> NDArray[Any]:
    data: bytes = getattr(record, name)
    dtype = np.dtype(kind)
    wanted = dtype.itemsize * int(np.prod(shape))
    if len(data) != wanted:
        raise WireError(f"game {record.uid}: {name} has {len(data)} bytes, {wanted} expected for shape {shape}; made for another game?")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=True)
