"""A run here as its study sees it: what it printed, its CPU against the budget, ended by one signal alone."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from memory_broker import MemoryBus, MemoryLedger

from azq import local
from azq.config import RunSections
from azq.ledger.records import record_of
from azq.parts.lab.sweep.plan import StudyPlan
from azq.parts.lab.sweep.trial import Trial, TrialFailed
from azq.process.apart import start
from azq.status.observe import gather
from azq.status.summary import summarise

LINES = """
import signal, sys
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
line = open(sys.argv[-1]).read()
while not seen:
    sum(range(1_000_000))
    print(line, flush=True)
for _ in range(6):
    sum(range(3_000_000))
    print(line, flush=True)
sys.exit(3 if len(seen) != int(sys.argv[-2]) else 0)
"""


@pytest.fixture
def plan() -> StudyPlan:
    return StudyPlan(name="s", until="cpu-s=0.01,steps=9", space={"network.blocks": {"low": 1, "high": 2}})  # type: ignore[dict-item]


@pytest.fixture
def line(tmp_path: Path) -> Path:
    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    ledger.create_run(record_of("s", RunSections(), str(tmp_path), 0, {}))
    path = tmp_path / "line.json"
    path.write_bytes(msgspec.json.encode(summarise(gather(ledger, bus, "s", ()), 0)))
    return path


@pytest.mark.parametrize("signals", [1, 2])
def test_a_run_that_has_spent_its_cpu_is_ended_once(
    tmp_path: Path, plan: StudyPlan, line: Path, signals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", LINES, str(signals), str(line)]
    monkeypatch.setattr(local, "up", lambda folder, log, *_, **process: start(command, folder, log, **process))
    run = Trial(plan, tmp_path, 0, {})
    if signals == 1:
        assert [status.progress for status in run.statuses()][-1] == 1.0
    else:
        with pytest.raises(TrialFailed, match="ended with exit code 3"):
            list(run.statuses())
