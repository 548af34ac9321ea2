"""Which cores a worker child searches on.

A child keeps to as many cores as it has search threads; its threads, started later, inherit that. The cores come from those the
process may use, in order, so that a worker confined to one NUMA node (numactl, systemd's CPUAffinity) stays there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator

from azq import logs

log = logs.get(__name__)


def cores_of(slot: int, threads: int, allowed: Collection[int]) -> frozenset[int]:
    """The cores of pool child number `slot`: `threads` neighbours that no other child has, or all where there are too few."""
    first = slot * threads
    chosen = sorted(allowed)[first : first + threads]
    return frozenset(chosen if len(chosen) == threads else allowed)


@contextlib.contextmanager
def pinned(slot: int, threads: int) -> Iterator[frozenset[int]]:
    """Keeps the calling thread, and threads it starts meanwhile, to the child's cores; says so where they do not suffice."""
    allowed = frozenset(os.sched_getaffinity(0))
    cores = cores_of(slot, threads, allowed)
    if (slot + 1) * threads > len(allowed):
        log.warning("not_pinned", slot=slot, threads=threads, cores=len(allowed), remedy="lower worker.concurrency or selfplay.threads")
    os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, allowed)
