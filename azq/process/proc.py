"""What processes cost and whether they live, by psutil; what cgroups leave this one of the machine."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil

from azq.metrics import CPU_S, RESIDENT_BYTES

CGROUPS, PROC = Path("/sys/fs/cgroup"), Path("/proc")


def status_of(pid: int) -> str:
    """psutil's status of a process; empty where it is gone."""
    with contextlib.suppress(psutil.Error):
        return str(psutil.Process(pid).status())
    return ""


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return status_of(pid) not in ("", psutil.STATUS_ZOMBIE)


def is_my_child(pid: int) -> bool:
    """Whether a child of this process lives; where `waitid` is missing (macOS before Python 3.13), whether any such process exists."""
    try:
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def children(pid: int) -> list[int]:
    """Direct children of a process; none where it is gone."""
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def cpu_s(pids: Iterable[int]) -> float:
    """CPU-seconds of these processes so far, without their children; 0.0 for one that is gone."""
    return sum(_cpu_s(pid)[0] for pid in pids)


def tree_cpu_s(pid: int) -> float:
    """CPU-seconds of a process and all its descendants, those that ended included."""
    with contextlib.suppress(psutil.Error):
        return sum(map(sum, map(_cpu_s, (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))))))
    return 0.0


def whole_cpu_s() -> float:
    """CPU-seconds of this process, finely, and of all that it started and that lives."""
    return time.process_time() + sum(map(tree_cpu_s, children(os.getpid())))


def resident_bytes(pid: int | None = None) -> int:
    """Resident memory of a process (this one by default); 0 where it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def usage(pid: int | None = None) -> dict[str, float]:
    """CPU-seconds and resident bytes of a process (this one by default) and its children, by metric name; {} where it is gone.

    CPU of ended children counts; pages that forked children share are counted once for each of them.
    """
    if not psutil.pid_exists(own := os.getpid() if pid is None else pid):
        return {}
    tree = [own, *(children(own) if pid is not None or _has_children() else ())]
    # In whole hundredths, the kernel's unit: the sum never falls, in whichever order it is added up.
    return {CPU_S: round(sum(sum(_cpu_s(process)) for process in tree), 2), RESIDENT_BYTES: float(sum(map(resident_bytes, tree)))}


def _cpu_s(pid: int) -> tuple[float, float]:
    """CPU-seconds of a process and of its children that ended."""
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system, times.children_user + times.children_system
    return 0.0, 0.0


def _has_children() -> bool:
    """Whether this process has any: psutil looks for them among all processes of the machine, 13 us each."""
    if hasattr(os, "waitid"):
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
    return True


def machine_busy_s() -> float | None:
    """CPU-seconds that all programs of the machine took so far; None where this process may not use all of its cores."""
    if usable_cores() != os.cpu_count():
        return None
    times = psutil.cpu_times()  # guests' time is part of `user` and `nice`
    idle = sum(getattr(times, name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice"))
    return float(sum(times) - idle)


def peak_resident_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


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
