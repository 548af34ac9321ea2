"""Drills as data: the shipped scenarios, what is refused, and when a drill has passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.console.drill import Outcome, Scenario, as_table, choose, load_all
from azq.console.drill.scenarios import PROCESSES, parse
from azq.console.drill.system import lost
from azq.errors import ConfigError, NotFound
from azq.ledger.types import LedgerCounts

KILL = Scenario("learner-kill", "kill -9 of the learner", "learner", "kill", 10.0)


def test_every_process_is_killed_and_hung_and_every_broker_killed() -> None:
    found = {(scenario.role, scenario.fault) for scenario in load_all()}
    assert {(role, fault) for role in PROCESSES for fault in ("kill", "stop")} <= found
    assert {("broker-control", "kill"), ("broker-data", "kill"), ("streams", "poison"), ("weights", "nan")} <= found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('summary = "x"\nrole = "learner"\nfault = "kill"\n', "within_s"),
        ('summary = "x"\nrole = "learner"\nfault = "poison"\nwithin_s = 1.0\n', "no fault 'poison' befalls 'learner'"),
        ("summary = ", "needs summary, role, fault"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as refused:
        parse(path)
    assert "odd.toml" in str(refused.value)


def test_drills_are_chosen_by_name() -> None:
    assert choose([KILL], "learner-kill") == choose([KILL], "all") == [KILL]
    with pytest.raises(NotFound, match=r"no drill 'fire'; there are: learner-kill, all"):
        choose([KILL], "fire")


@pytest.mark.parametrize(
    ("changed", "passed"),
    [
        ({}, True),
        ({"recovery_s": [3.0, 12.0, 11.0]}, False),
        ({"recovery_s": []}, False),
        ({"games_lost": 1}, False),
        ({"duplicates_inserted": 1}, False),
        ({"balanced": False}, False),
        ({"failed": "learner did not come back"}, False),
    ],
)
def test_a_drill_passes_when_nothing_is_lost_and_the_median_is_in_time(changed: dict[str, object], passed: bool) -> None:
    outcome = Outcome(KILL, **{"recovery_s": [3.0, 12.0, 9.0], **changed})  # type: ignore[arg-type]
    assert outcome.passed() is passed
    assert ("NOT PASSED" in as_table([outcome])) is not passed
    assert outcome.values()["passed"] is passed


def test_games_that_the_ledger_cannot_account_for_are_lost() -> None:
    sound = LedgerCounts(opened=10, finished=6, open=3, abandoned=1, inserted=5, in_transit=1, duplicates_dropped=2)
    assert lost(sound) == 0
    assert lost(LedgerCounts(10, 6, 2, 1, 5, 1, 0)) == 1
    assert lost(LedgerCounts(10, 6, 3, 1, 4, 1, 0)) == 1
