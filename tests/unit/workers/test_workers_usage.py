"""What a process says it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from azq import metrics
from azq.process.usage import children, usage

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
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


def test_where_there_is_nothing_to_read_nothing_is_said(tmp_path: Path) -> None:
    assert usage(proc=tmp_path) == {}
    assert children(os.getpid(), tmp_path) == []
