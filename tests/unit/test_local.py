"""`azq.Local` around a process that stands for `azq up`: what it prints is read, how it ends is passed on, and its folder goes or stays."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from memory_broker import MemoryBus, MemoryLedger
from waiting import PATIENCE_S

import azq
from azq import local
from azq.config import RunSections
from azq.errors import EvaluationTimeout, StateConflict
from azq.ledger.records import record_of
from azq.process.apart import start
from azq.process.proc import tree_cpu_s
from azq.status.observe import gather
from azq.status.summary import summarise

PRINTS = "import sys; line = open('line.json').read(); print(line, flush=True)"
ENDS_AT_SIGNAL = f"import signal; signal.signal(signal.SIGINT, lambda *_: sys.exit(0)); sum(range(5_000_000)); {PRINTS}; signal.pause()"
FAILS = f"{PRINTS}; print(line[:20], end=''); print('no disk', file=sys.stderr); sys.exit(7)"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The program that is started in place of `azq up`; its folder has a status to print."""
    found = [""]
    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    ledger.create_run(record_of("s", RunSections(), "/s", 0, {}))
    status = msgspec.json.encode(summarise(gather(ledger, bus, "s", ()), 0))

    def up(folder: Path, log: Path, *_: Any, env: Any, **process: Any) -> subprocess.Popen[bytes]:
        (folder / "line.json").write_bytes(status)
        return start([sys.executable, "-c", f"import sys; {found[0]}"], folder, log, **process)

    monkeypatch.setattr(local, "up", up)
    return found


def test_it_is_exported_and_nothing_else_is_made_up() -> None:
    assert azq.Local is local.Local
    with pytest.raises(AttributeError, match="Cluster"):
        _ = azq.Cluster


def test_a_run_that_ends_well_says_where_it_stood_and_leaves_nothing(program: list[str]) -> None:
    program[0] = PRINTS
    with azq.Local("tic_tac_toe") as run:
        assert run.wait().run == "s"
        assert run.status() == run.wait()
    assert not run.folder.exists()


def test_a_run_that_fails_is_an_error_that_names_its_code_its_last_line_and_its_files(program: list[str], tmp_path: Path) -> None:
    program[0] = FAILS
    with pytest.raises(EvaluationTimeout, match=r"exit code 7: no disk; see .*up\.log") as failed, azq.Local("tic_tac_toe") as run:
        run.wait()
    assert run.status() is not None  # the whole line; the half one after it is none
    assert failed.value.__notes__ == [f"files of the run are in {run.folder}"]
    shutil.rmtree(run.folder)
    with pytest.raises(EvaluationTimeout, match="exit code 7"), azq.Local("tic_tac_toe", folder=tmp_path / "kept") as run:
        run.until(lambda: None, "anything", PATIENCE_S)
    assert (tmp_path / "kept").is_dir()


def test_it_is_ended_by_one_signal_and_can_be_started_again(program: list[str], tmp_path: Path) -> None:
    program[0] = ENDS_AT_SIGNAL
    run = azq.Local("tic_tac_toe", folder=tmp_path)
    for _ in range(2):
        run.start()
        run.until(run.status, "a status", PATIENCE_S)
        run.end()
        run.end()
        run.wait()
        run.stop()


def test_what_does_not_come_in_time_is_named(program: list[str], tmp_path: Path) -> None:
    program[0] = ENDS_AT_SIGNAL
    with azq.Local("tic_tac_toe", folder=tmp_path) as run:
        run.until(run.status, "a status", PATIENCE_S)
        with pytest.raises(EvaluationTimeout, match=r"the moon did not come within 0\.1 s"):
            run.until(lambda: None, "the moon", 0.1)
        assert run.query(lambda client: client.ping()) is None  # it never had a broker
        assert run.beats() == []
        assert run.cpu_s() > 0  # more than a tick of the clock that counts it
    with pytest.raises(StateConflict, match="does not run"):
        run.kill("learner", signal.SIGTERM)


def test_the_cpu_of_processes_that_ended_counts() -> None:
    before = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert tree_cpu_s(os.getpid()) > before
