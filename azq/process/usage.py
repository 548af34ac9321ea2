"""What a process costs its host: CPU and memory with its children, from /proc; nothing where there is none."""

from __future__ import annotations

import os
from pathlib import Path

from azq.metrics import CPU_S, RESIDENT_BYTES

PROC = Path("/proc")
# Fields of /proc/<pid>/stat after the name, counted from the state (proc(5) numbers it 3).
UTIME, CSTIME, RESIDENT_PAGES = 11, 14, 21  # user and system, own and of ended children, lie between the first two


def usage(pid: int | None = None, proc: Path = PROC) -> dict[str, float]:
    """CPU-seconds and resident bytes of a process (this one) and its children, ended children's CPU included, under their names.

    Pages that forked children share are counted once for each of them.
    """
    own = _stat(proc, os.getpid() if pid is None else pid)
    if own is None:
        return {}
    tree = [own, *(stat for child in children(os.getpid() if pid is None else pid, proc) if (stat := _stat(proc, child)) is not None)]
    ticks = sum(sum(stat[UTIME : CSTIME + 1]) for stat in tree)
    return {
        CPU_S: ticks / os.sysconf("SC_CLK_TCK"),
        RESIDENT_BYTES: float(sum(stat[RESIDENT_PAGES] for stat in tree) * os.sysconf("SC_PAGE_SIZE")),
    }


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Direct children of a process, whichever of its threads forked them."""
    try:
        return [int(word) for task in (proc / str(pid) / "task").iterdir() for word in (task / "children").read_text().split()]
    except OSError:
        return []


def _stat(proc: Path, pid: int) -> list[int] | None:
    """The numbers after the state, the state itself as 0; None for a process that is gone."""
    try:
        words = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [0, *(int(word) for word in words[1:])]
