"""What a process that computes with torch settles at its start: threads, and how it keeps its memory."""

from __future__ import annotations

import ctypes

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
KEPT_BYTES = 1 << 30  # freed memory at the heap's end that is not given back
LARGEST_BLOCK_BYTES = 32 << 20  # the largest that glibc lets come from the heap


def prepare_process(threads: int) -> None:
    """Settles this process for computing on `threads` threads of the CPU."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Has malloc hand the same memory out again instead of giving it back to the system; False where malloc is not glibc's.

    A tensor of a megabyte is otherwise mapped and unmapped in every step, and the kernel zeroes each of its pages when it is
    touched: a third of the CPU time of training a small network, and of evaluating a perceptron in large batches.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))
