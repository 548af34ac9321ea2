"""A data broker of several dies or hangs under a whole system: nothing is lost, and the rest works on."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.test_drills import assert_passed, drill


@pytest.mark.release
def test_a_dead_and_a_hung_data_broker_of_three_lose_nothing(tmp_path: Path) -> None:
    names = ("broker-data-hang", "broker-data-kill")
    assert_passed(drill(tmp_path, "run", ",".join(names), "--set", "broker.data_shards=3"), *names)


@pytest.mark.release
def test_one_of_two_data_brokers_dies_while_the_other_carries_the_run(tmp_path: Path) -> None:
    found = drill(tmp_path, "run", "broker-data1-kill", "--rounds", "2")
    assert_passed(found, "broker-data1-kill")
    (outcome,) = found["drills"]
    assert (outcome["role"], outcome["fault"]) == ("broker-data1", "kill-used")
