"""Processes as the kernel tells of them in /proc, see proc(5); nothing where there is none."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from azq.metrics import CPU_S, RESIDENT_BYTES

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    state: str  # one letter: T was told to stop, Z is dead and waits for its parent to notice
    parent: int
    cpu_s: float  # user and system, of all its threads
    ended_cpu_s: float  # of children that ended
    resident_bytes: int
    started: int  # clock ticks after the machine's start: with the number it tells a process from all others


def stat_of(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """A process; None where it is gone."""
    try:
        state, *words = (proc / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    user, system, ended_user, ended_system = (int(word) * TICK_S for word in words[10:14])
    return ProcessStat(state, int(words[0]), user + system, ended_user + ended_system, int(words[20]) * PAGE_BYTES, int(words[18]))


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Direct children of a process, whichever of its threads forked them."""
    try:
        return [int(word) for task in (proc / str(pid) / "task").iterdir() for word in (task / "children").read_text().split()]
    except OSError:
        return []


def tree_cpu_s(pid: int) -> float:
    """CPU-seconds of a process, its children, theirs and so on, those that ended included."""
    own = stat_of(pid)
    return own.cpu_s + own.ended_cpu_s + sum(map(tree_cpu_s, children(pid))) if own else 0.0


def command(pid: int, proc: Path = PROC) -> list[str]:
    """A process's command line; empty where it is gone."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def alive(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is there and is no zombie."""
    found = stat_of(pid, proc)
    return found is not None and found.state != "Z"


def is_my_child(pid: int) -> bool:
    """Whether a process lives and, on Linux, is a child of this one; a zombie is dead."""
    if not sys.platform.startswith("linux"):
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    found = stat_of(pid)
    return found is not None and found.state != "Z" and found.parent == os.getpid()


def cpu_s(pids: Iterable[int]) -> float:
    """CPU-seconds of these processes so far; one that is gone counts nothing."""
    return sum(found.cpu_s for pid in pids if (found := stat_of(pid)) is not None)


def usable_cores(cgroups: Path = CGROUPS, proc: Path = PROC) -> int:
    """Cores that this process may use: those it may run on, or as many whole ones as a cgroup above it gives time of where that is less."""
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in _groups(cgroups, proc, "cpu"):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):  # no such group here, or `max`
            quota, period = map(int, (group / "cpu.max").read_text().split())
            counts.append(quota // period)
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            if quota > 0:  # -1: as much as there is
                counts.append(quota // period)
    return max(1, min(counts))


def machine_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_grows(total: int, virtio_mem: Path = Path("/sys/bus/virtio/drivers/virtio_mem")) -> bool:
    """Whether a machine's total grows with use and so bounds nothing: by virtio-mem, or under gVisor, which reports powers of two."""
    return total.bit_count() == 1 or any(virtio_mem.glob("virtio*"))


def usable_memory_bytes(cgroups: Path = CGROUPS, proc: Path = PROC) -> int:
    """Memory that this process may use: the machine's, or what a cgroup above it allows where that is less (cgroups(7))."""
    sizes = [machine_memory_bytes()]
    for group in _groups(cgroups, proc, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # no such group here, or `max`
                sizes.append(int((group / name).read_text()))
    return min(sizes)


def _groups(cgroups: Path, proc: Path, controller: str) -> Iterator[Path]:
    """Folders of the groups that this process is in and of all above them, of version 2 and of this controller's own version 1."""
    try:
        lines = [line.split(":", 2) for line in (proc / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if not controllers or controller in controllers.split(","):
            for folder in (path, *map(str, Path(path).parents)):
                yield (cgroups / controller if controllers else cgroups) / folder.lstrip("/")


def machine_busy_s(proc: Path = PROC) -> float | None:
    """CPU-seconds that all programs of the machine took so far; None where this process may not use all of its cores."""
    if usable_cores() != os.cpu_count():
        return None
    try:
        user, nice, system, _, _, irq, softirq, steal = map(int, (proc / "stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) * TICK_S


def peak_resident_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def private_bytes(pid: int, proc: Path = PROC) -> int:
    """Memory that a process has written and shares with nobody; 0 where it is gone."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def usage(pid: int | None = None, proc: Path = PROC) -> dict[str, float]:
    """CPU-seconds and resident bytes of a process (this one) and its children, ended children's CPU included, under their names.

    Pages that forked children share are counted once for each of them.
    """
    pid = os.getpid() if pid is None else pid
    if (own := stat_of(pid, proc)) is None:
        return {}
    tree = [own, *(found for child in children(pid, proc) if (found := stat_of(child, proc)) is not None)]
    ticks = round(sum(one.cpu_s + one.ended_cpu_s for one in tree) / TICK_S)  # whole ones: whichever way they are added up, it never falls
    return {CPU_S: ticks * TICK_S, RESIDENT_BYTES: float(sum(one.resident_bytes for one in tree))}
