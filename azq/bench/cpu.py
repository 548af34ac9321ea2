"""CPU-seconds of processes and their children, as the kernel counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def cpu_s(pids: Iterable[int]) -> float:
    """User and system time of these processes so far, all threads; a process that is gone counts nothing."""
    return sum(_one(pid) for pid in pids)


def _one(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S  # utime and stime: fields 14 and 15, counted from 1


def peak_rss_mb(pid: int) -> float:
    """Largest resident memory of a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
