"""A data broker of several dies or hangs under a whole system: nothing is lost, and the rest works on."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.test_drills import drill, sound


@pytest.mark.slow
def test_a_dead_and_a_hung_data_broker_of_three_lose_nothing(tmp_path: Path) -> None:
    outcomes = drill(tmp_path, "broker-data-hang,broker-data-kill", "--set", "broker.data_shards=3")["drills"]
    assert [outcome["name"] for outcome in outcomes] == ["broker-data-hang", "broker-data-kill"]
    assert all(sound(outcome) for outcome in outcomes), outcomes


@pytest.mark.slow
def test_one_of_two_data_brokers_dies_while_the_other_carries_the_run(tmp_path: Path) -> None:
    (outcome,) = drill(tmp_path, "broker-data1-kill", "--rounds", "2")["drills"]
    assert (outcome["role"], outcome["fault"]) == ("broker-data1", "kill-used")
    assert sound(outcome), outcome
