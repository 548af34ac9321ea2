"""Failures rehearsed on a real system: the five most telling ones (`-m drill`, in CI), all of them in the slow tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import azq

from azq.parts.lab.drill import load_all

PATIENCE = "3"  # bounds are for a machine that does nothing else; this one runs other tests beside
SHARED = (
    "broker-control-kill",
    "broker-data-kill",
    "selfplay-child-kill",
    "weights-nan",
)
ALONE = "broker-control-lost"  # on a system of its own


def drill(home: Path, *arguments: str) -> dict[str, Any]:
    done = azq(home, "drill", *arguments, "--patience", PATIENCE, "--json", timeout_s=1200)
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
def test_dead_processes_dead_brokers_and_bad_weights_lose_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "run", ",".join(SHARED))
    assert_passed(found, *SHARED)
    searched = {outcome["name"] for outcome in found["drills"] if outcome["search_lost_s"] is not None}
    assert searched == {"selfplay-child-kill"}


@pytest.mark.drill
def test_a_lost_control_plane_loses_nothing(tmp_path: Path) -> None:
    assert_passed(drill(tmp_path, "run", ALONE), ALONE)


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_every_drill_loses_nothing(tmp_path: Path) -> None:
    assert_passed(drill(tmp_path, "run", "all"), *(scenario.name for scenario in load_all()))


@pytest.mark.release
def test_faults_that_do_not_wait_for_anything_to_heal_lose_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "chaos", "--mtbf-s", "3", "--faults", "60", "--seed", "5")
    assert found["faults"] == 60
    assert found["drills"][0]["passed"], found
