"""What the kernel says of processes: what they cost, whose they are, whether they live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from azq import metrics
from azq.process.proc import (
    alive,
    children,
    cpu_s,
    is_my_child,
    machine_busy_s,
    machine_memory_bytes,
    memory_grows,
    status_of,
    tree_cpu_s,
    usable_cores,
    usable_memory_bytes,
    usage,
)

BURN = "import time\nwhile time.process_time() < {s}: pass\nprint('done', flush=True)\ninput()"


def test_cpu_counts_living_and_ended_children() -> None:
    before = usage()[metrics.CPU_S]
    child = subprocess.Popen([sys.executable, "-c", BURN.format(s=0.3)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in children(os.getpid())
    living = usage()
    assert living[metrics.CPU_S] - before >= 0.28
    assert living[metrics.RESIDENT_BYTES] > usage(child.pid)[metrics.RESIDENT_BYTES] > 1e6
    child.communicate(b"\n")
    assert usage()[metrics.CPU_S] >= living[metrics.CPU_S]


def test_where_there_is_nothing_to_read_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert (usage(), status_of(os.getpid()), children(os.getpid())) == ({}, "", [])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_my_child(child.pid)
        child.kill()


def test_only_living_children_of_this_process_are_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_my_child(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        if sys.platform.startswith("linux"):
            assert not is_my_child(child.pid)  # a zombie
            assert not is_my_child(os.getppid())
    assert not is_my_child(child.pid)


def test_a_process_is_told_by_whether_it_lives_and_what_it_spent() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN.format(s=0)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert alive(child.pid)
        own_s = cpu_s([os.getpid()])
        assert 0.0 < own_s <= cpu_s([os.getpid(), child.pid]) <= tree_cpu_s(os.getpid()) + 0.1
        child.kill()
    assert not alive(child.pid)
    assert cpu_s([child.pid]) == 0.0


@pytest.mark.parametrize(
    ("lines", "limits", "allowed"),
    [
        ("0::/jobs/one\n", {"jobs/memory.max": "3000\n", "jobs/one/memory.max": "max\n"}, 3000),  # the group above it is the smaller one
        ("4:memory,cpu:/box\n0::/\n", {"memory/box/memory.limit_in_bytes": "5000\n"}, 5000),
        ("0::/gone\n", {"memory.max": "4000\n"}, 4000),  # in a container its own group is the root
        ("3:cpu:/box\n", {"memory/box/memory.limit_in_bytes": "5000\n"}, None),
        (None, {}, None),
    ],
)
def test_memory_is_what_the_groups_above_allow(tmp_path: Path, lines: str | None, limits: dict[str, str], allowed: int | None) -> None:
    _write_groups(tmp_path, lines, limits)
    usable = usable_memory_bytes(tmp_path / "cgroup", tmp_path / "proc")
    assert usable == (machine_memory_bytes() if allowed is None else allowed)


def test_a_total_that_grows_with_use_is_known_by_what_makes_it_grow(tmp_path: Path) -> None:
    assert memory_grows(2 << 30, tmp_path)  # as gVisor rounds it
    assert not memory_grows((2 << 30) - 4096, tmp_path)
    (tmp_path / "virtio3").touch()
    assert memory_grows((2 << 30) - 4096, tmp_path)


@pytest.mark.parametrize(
    ("lines", "limits", "allowed"),
    [
        ("0::/jobs/one\n", {"jobs/cpu.max": "100000 100000\n", "jobs/one/cpu.max": "max 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),  # less than a whole one is one
        ("0::/\n", {"cpu.max": "6400000 100000\n"}, None),  # more than there are
        ("4:cpu,cpuacct:/box\n0::/\n", {"cpu/box/cpu.cfs_quota_us": "50000\n", "cpu/box/cpu.cfs_period_us": "50000\n"}, 1),
        ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "-1\n", "cpu/box/cpu.cfs_period_us": "100000\n"}, None),
        ("4:memory:/box\n", {"cpu/box/cpu.cfs_quota_us": "50000\n", "cpu/box/cpu.cfs_period_us": "50000\n"}, None),
        (None, {"cpu.max": "100000 100000\n"}, None),
    ],
)
def test_cores_are_those_whose_time_the_groups_above_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str | None, limits: dict[str, str], allowed: int | None
) -> None:
    _write_groups(tmp_path, lines, limits)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(48)), raising=False)
    assert usable_cores(tmp_path / "cgroup", tmp_path / "proc") == (48 if allowed is None else allowed)


def _write_groups(folder: Path, lines: str | None, limits: dict[str, str]) -> None:
    (folder / "proc" / "self").mkdir(parents=True)
    if lines is not None:
        (folder / "proc" / "self" / "cgroup").write_text(lines)
    for name, text in limits.items():
        (folder / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup" / name).write_text(text)


def test_the_machine_is_at_least_as_busy_as_this_process() -> None:
    before = machine_busy_s()
    if before is None:
        pytest.skip("this process may not use all cores")
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    after = machine_busy_s()
    assert after is not None
    assert after - before >= 0.4
