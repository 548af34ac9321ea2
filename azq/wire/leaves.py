"""How many leaves one evaluation request and its answer have room for. Pure.

Letters: L leaves, P bytes of a packed observation, A actions, V values per leaf.
"""

from __future__ import annotations

from azq.wire.codec import MAX_FRAME_BYTES

ENVELOPE_BYTES = 1024  # of a frame beside its arrays, the longest name of a client included


def answer_bytes(leaves: int, num_actions: int, value_size: int) -> int:
    """A bound on the frame of an answer: float16 logits (L, A) and values (L, V)."""
    return ENVELOPE_BYTES + 2 * leaves * (num_actions + value_size)


def most_leaves(packed_size: int, num_actions: int, value_size: int) -> int:
    """The most leaves whose request (L, P) and whose answer each fit a frame; 0 where not even one does."""
    return (MAX_FRAME_BYTES - ENVELOPE_BYTES) // max(packed_size, 2 * (num_actions + value_size))
