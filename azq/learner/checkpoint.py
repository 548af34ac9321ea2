"""Everything a learner needs to go on as if it had never stopped, in one file.

    header   magic (8), length of the state u32, SHA-256 (32) of all that follows
    state    `TrainState` in msgpack
    tensors  safetensors: weights/<name>, ema/<name>, exp_avg/<name>, exp_avg_sq/<name>, step/<name>

A file appears under its name only when it is whole and on disk. Damaged ones are said and passed over for the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
from torch import Tensor

from azq import logs
from azq.errors import StoreError
from azq.files import make_folders, publish_file
from azq.wire.messages import RankStatus

SCHEMA = 1
KEEP = 3
MAGIC = b"AZQCKPT1"
_HEADER = struct.Struct("<8sI32s")

log = logs.get(__name__)


class TrainState(msgspec.Struct, frozen=True):
    """Counters beside the tensors. Random numbers need no more: they are functions of the run's seed, the rank and the step."""

    schema: int
    game: str
    step: int
    samples_consumed: int
    duplicates_dropped: int
    weight_version: int  # newest published when the checkpoint was written
    loss_policy: float
    loss_value: float
    network: dict[str, Any] = {}  # plain values of azq.config.NetworkConfig; empty: the run's first, as before networks grew
    shares: tuple[int, ...] = ()  # rows of a step, by rank
    ranks: tuple[RankStatus, ...] = ()  # how each did, those that had failed among them


@dataclass(frozen=True, slots=True)
class Checkpoint:
    state: TrainState
    tensors: dict[str, Tensor]


def save(directory: Path, checkpoint: Checkpoint, *, keep: int = KEEP) -> Path:
    """Writes a checkpoint and removes all but the newest `keep`; raises `StoreError` when the disk does not take it, older ones stay."""
    path = directory / f"{checkpoint.state.step:012d}.ckpt"
    try:
        make_folders(directory)
        publish_file(path, _encode(checkpoint))
    except OSError as error:
        raise StoreError(
            f"checkpoint {path} cannot be written: {error.strerror}; free disk space there, older checkpoints are intact"
        ) from error
    drafts = directory.glob("*.tmp")  # of learners that died over them
    for old in (*stored(directory)[:-keep], *drafts):
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def stored(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.ckpt"))


def load(path: Path) -> Checkpoint:
    """Reads a checkpoint; raises `StoreError` naming the file and what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"checkpoint {path} cannot be read: {error.strerror}") from error
    if len(data) < _HEADER.size:
        raise StoreError(f"checkpoint {path} is cut short after {len(data)} bytes")
    magic, length, digest = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != MAGIC or hashlib.sha256(body).digest() != digest:
        raise StoreError(f"checkpoint {path} is damaged: its checksum does not match")
    try:
        state = msgspec.msgpack.decode(body[:length], type=TrainState)
        tensors = safetensors.torch.load(bytes(body[length:]))
    except (msgspec.DecodeError, safetensors.SafetensorError) as error:
        raise StoreError(f"checkpoint {path} does not decode: {error}") from error
    if state.schema != SCHEMA:
        raise StoreError(f"checkpoint {path} has schema {state.schema}, this azq reads {SCHEMA}; use the azq that wrote it")
    return Checkpoint(state, tensors)


def load_newest(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; each damaged one before it is logged. None when there is no file at all.

    Raises `StoreError` when there are files and none is whole.
    """
    paths = stored(directory)
    for path in reversed(paths):
        try:
            return load(path)
        except StoreError as error:
            log.warning("checkpoint_passed_over", reason=str(error), remedy="the one before it is used")
    if paths:
        raise StoreError(
            f"none of the {len(paths)} checkpoints in {directory} can be read; move them away to train from the published weights"
        )
    return None


def _encode(checkpoint: Checkpoint) -> bytes:
    state = msgspec.msgpack.encode(checkpoint.state)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    body = state + safetensors.torch.save(tensors)
    return _HEADER.pack(MAGIC, len(state), hashlib.sha256(body).digest()) + body
