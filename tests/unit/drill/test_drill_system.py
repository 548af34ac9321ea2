"""Processes that drills start, stop, let go on and end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from azq.drill.system import ended, signalled, start
from azq.process.proc import stat_of
from azq.waiting import until


def state(pid: int) -> str:
    found = stat_of(pid)
    return found.state if found else ""


def test_a_stopped_process_goes_on_when_that_is_lifted_and_ends_with_its_block(tmp_path: Path) -> None:
    with ended(start([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")) as process:
        lift = signalled(signal.SIGSTOP, process.pid)
        until(lambda: state(process.pid) == "T", "it did not stop", 60.0)
        lift()
        until(lambda: state(process.pid) in ("R", "S"), "it did not go on", 60.0)
    assert process.returncode == -signal.SIGKILL


def test_what_is_gone_is_let_go_on_without_complaint(tmp_path: Path) -> None:
    with ended(start([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")) as process:
        lift = signalled(signal.SIGKILL, process.pid)
        process.wait(60.0)
    lift()


def test_a_process_finds_no_setting_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", "/elsewhere")
    script = "import os; print({name: value for name, value in os.environ.items() if name.startswith('AZQ_')})"
    assert start([sys.executable, "-c", script], tmp_path / "log", {"AZQ_RUN": "x"}).wait(60.0) == 0
    assert (tmp_path / "log").read_text().strip() == "{'AZQ_RUN': 'x'}"
