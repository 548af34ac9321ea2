"""Failures rehearsed on a real system: some in every run of the tests, all of them in the slow ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acceptance.test_whole_loop import AZQ, environment

from azq.console.drill import load_all

QUICK = ("broker-data-kill", "learner-kill-unacknowledged", "selfplay-child-kill", "weights-nan")


def drill(home: Path, *arguments: str) -> dict[str, Any]:
    command = [*AZQ, "drill", "run", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home), timeout=1200, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sound(outcome: dict[str, Any]) -> bool:
    """Nothing lost and nothing twice; times are for quiet machines."""
    return bool(outcome["balanced"]) and not outcome["failed"] and outcome["games_lost"] == outcome["duplicates_inserted"] == 0


def test_dead_processes_a_dead_broker_and_bad_weights_lose_nothing(tmp_path: Path) -> None:
    outcomes = drill(tmp_path, ",".join(QUICK))["drills"]
    assert [outcome["name"] for outcome in outcomes] == sorted(QUICK)
    assert [outcome["search_lost_s"] is not None for outcome in outcomes] == [name.startswith("selfplay") for name in sorted(QUICK)]
    assert all(sound(outcome) for outcome in outcomes), outcomes


@pytest.mark.slow
def test_every_drill_loses_nothing(tmp_path: Path) -> None:
    outcomes = drill(tmp_path, "all")["drills"]
    assert {outcome["name"] for outcome in outcomes} == {scenario.name for scenario in load_all()}
    assert all(sound(outcome) for outcome in outcomes), outcomes


@pytest.mark.slow
def test_chaos_loses_nothing(tmp_path: Path) -> None:
    found = drill(tmp_path, "all", "--minutes", "5", "--seed", "3")
    assert all(sound(outcome) for outcome in found["drills"]), found
    assert found["throughput_share"]["games"] > 0
