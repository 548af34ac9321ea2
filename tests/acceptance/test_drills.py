"""Failures rehearsed on a real system: the eight most telling ones (`-m drill`, in CI), all of them in the slow tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acceptance.test_whole_loop import AZQ, environment

from azq.host.browser import no_browser
from azq.parts.lab.drill import load_all
from azq.parts.lab.drill.scenarios import PAGE

PATIENCE = "3"  # bounds are for a machine that does nothing else; this one runs other tests beside
SHARED = (
    "broker-control-kill",
    "broker-data-kill",
    "learner-elsewhere",
    "learner-kill-unacknowledged",
    "selfplay-child-kill",
    "weights-nan",
)
ALONE = ("broker-control-lost", "game-deadly")  # on systems of their own


def drill(home: Path, *arguments: str) -> dict[str, Any]:
    command = [*AZQ, "drill", *arguments, "--patience", PATIENCE, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home), timeout=1200, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_passed(found: dict[str, Any], *names: str) -> None:
    """Nothing lost and nothing twice, by the disk, and back in time."""
    outcomes = found["drills"]
    assert sorted(outcome["name"] for outcome in outcomes) == sorted(names)
    assert {outcome["name"]: outcome["problem"] for outcome in outcomes if not outcome["passed"]} == {}, outcomes
    assert all(outcome["compared"] > 0 < outcome["rounds"] for outcome in outcomes)


@pytest.mark.drill
def test_dead_processes_dead_brokers_a_second_learner_and_bad_weights_lose_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "run", ",".join(SHARED))
    assert_passed(found, *SHARED)
    searched = {outcome["name"] for outcome in found["drills"] if outcome["search_lost_s"] is not None}
    assert searched == {"selfplay-child-kill"}


@pytest.mark.drill
@pytest.mark.parametrize("name", ALONE)
def test_what_has_a_system_of_its_own_loses_nothing(tmp_path: Path, name: str) -> None:
    assert_passed(drill(tmp_path, "run", name), name)


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_every_drill_loses_nothing(tmp_path: Path) -> None:
    left_out = PAGE if no_browser() else ""
    assert_passed(drill(tmp_path, "run", "all"), *(scenario.name for scenario in load_all() if scenario.role != left_out))


@pytest.mark.release
def test_chaos_loses_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "run", "all", "--minutes", "5", "--seed", "3")
    assert {outcome["name"]: outcome["problem"] for outcome in found["drills"] if not outcome["passed"]} == {}
    assert found["throughput_share"]["games"] > 0


@pytest.mark.release
def test_faults_that_do_not_wait_for_anything_to_heal_lose_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "chaos", "--mtbf-s", "3", "--faults", "60", "--seed", "5")
    assert found["faults"] == 60
    assert found["drills"][0]["passed"], found
