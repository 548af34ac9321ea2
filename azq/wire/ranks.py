"""The status of each of the processes that train one network together: part of their heartbeats and of the learner's status."""

from __future__ import annotations

import msgspec


class RankStatus(msgspec.Struct, frozen=True, array_like=True):
    """One of them; times are of one step of the last round."""

    rank: int = 0
    state: str = ""  # trains, waits, away, or left_out for its errors
    host: str = ""
    device: str = ""
    rows: int = 0  # of a step
    samples_per_s: float = 0.0  # if it never waited
    batch_s: float = 0.0
    sync_s: float = 0.0  # of it, waiting for others
    memory_bytes: int = 0  # that its process has of the device
    micro_batch: int = 0  # most samples of one pass; 0: all of its rows
    errors: int = 0
    reason: str = ""  # of the last error
    seen_ms: int = 0  # its last sign of life; 0: never
    state_bytes: int = 0  # of weights, gradients, optimiser and average, as far as it holds them
