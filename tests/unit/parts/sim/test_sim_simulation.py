"""A seed decides everything; faults are met, and no game is lost, doubled or stuck."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from azq import logs
from azq.errors import ConfigError
from azq.parts.sim import simulation
from azq.parts.sim.faults import KINDS, Fault, parse, plan
from azq.parts.sim.simulation import SeedOutcome, shrink, simulate

SEEDS = Path(__file__).parents[3] / "sim" / "seeds.txt"
QUICK = 60  # seeds of each test run
SECONDS = 12.0  # of faults in each
RATE = 2.0
IN_A_PROCESS = """
import logging
from azq import logs
from azq.parts.sim.faults import plan
from azq.parts.sim.simulation import simulate
logs.setup("sim", level=logging.CRITICAL)
print(simulate(3, plan(3, 2, 9), 9).trace_hash)
"""


@pytest.fixture(autouse=True)
def _quiet():
    logs.setup("sim", level=logging.CRITICAL)


def verdict(outcome: SeedOutcome) -> tuple[int, int, str, list[str]]:
    return outcome.lost, outcome.doubled, outcome.stuck, list(outcome.wrong)


@pytest.mark.parametrize("first", range(0, QUICK, 6))
def test_seeds_lose_nothing_double_nothing_and_get_on(first):
    for seed in range(first, first + 6):
        outcome = simulate(seed, plan(seed, RATE, SECONDS), SECONDS)
        assert verdict(outcome) == (0, 0, "", []), f"azq sim --seed {seed} --faults {RATE} --minutes {SECONDS / 60}"
        assert outcome.games >= simulation.NEW_GAMES


@pytest.mark.parametrize("line", [line for line in SEEDS.read_text("utf-8").splitlines() if line[:1].isdigit()])
def test_seeds_that_failed_once_fail_no_more(line):
    seed, rate, minutes, _ = line.split(" ", 3)
    outcome = simulate(int(seed), plan(int(seed), float(rate), 60 * float(minutes)), 60 * float(minutes))
    assert verdict(outcome) == (0, 0, "", [])


def test_a_seed_takes_the_same_course_in_each_process():
    run = [sys.executable, "-c", IN_A_PROCESS]
    there = subprocess.run(run, env={**os.environ, "PYTHONHASHSEED": "1"}, check=True, capture_output=True, text=True).stdout
    assert simulate(3, plan(3, 2, 9), 9).trace_hash == there.splitlines()[-1]
    assert simulate(4, plan(4, 2, 9), 9).trace_hash != simulate(3, plan(3, 2, 9), 9).trace_hash


def test_a_plan_has_all_kinds_of_faults_at_its_rate():
    faults = [fault for seed in range(40) for fault in plan(seed, 2.0, 30.0)]
    assert {fault.kind for fault in faults} == set(KINDS)
    assert 2000 < len(faults) < 2800
    assert not any(fault.kind == "broker_rollback" for seed in range(0, 40, 2) for fault in plan(seed, 2.0, 30.0))


def test_faults_are_read_as_they_are_printed():
    faults = plan(1, 2.0, 30.0)
    assert [str(fault) for fault in parse([str(fault) for fault in faults])] == [str(fault) for fault in faults]
    with pytest.raises(ConfigError, match="no fault 'flood'; there are: kill"):
        parse(["1.0:flood:3:0.5"])
    with pytest.raises(ConfigError, match="is no fault; write SECONDS"):
        parse(["kill"])


def test_a_failing_plan_is_shrunk_to_the_faults_that_matter(monkeypatch):
    needed = {"kill", "disk_full"}

    def simulated(seed: int, faults: list[Fault], _: float) -> SeedOutcome:
        wrong = ["lost"] if needed <= {fault.kind for fault in faults} else []
        return SeedOutcome(seed, faults, 1.0, 1, 0, 0, "", wrong, "", 0.0)

    monkeypatch.setattr(simulation, "simulate", simulated)
    shrunk = shrink(simulated(1, plan(1, 2.0, 40.0), 40.0), 40.0)
    assert sorted(fault.kind for fault in shrunk.faults) == sorted(needed)


def test_a_machine_that_is_sent_away_is_refused_until_it_is_let_in_and_nothing_is_lost():
    outcome = simulate(2, parse(["9.0:machine_sent_away:3:0.9"]), SECONDS, trace=True)
    assert verdict(outcome) == (0, 0, "", [])
    assert any("learner-1" in line and line.endswith("ended AccessRefused") for line in outcome.trace)
