"""Runs beside each other, over the doubles and over REST."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from run_courses import courses, plant_run

from azq.console.remote import weights_row
from azq.errors import InvalidRequest, NotFound
from azq.status.compare import SettingDifference, checked, compare
from azq.status.schemas import WeightsOut


def test_figures_stand_where_all_were_and_settings_that_differ_are_named() -> None:
    found = compare(courses({"name": "slow"}, {"name": "fast", "speed": 2.0, "num_simulations": 32}), "steps")
    assert (found.game, [run.run for run in found.runs]) == ("connect_four", ["slow", "fast"])
    assert found.settings == [SettingDifference("search.num_simulations", [64, 32])]
    errors = next(row for row in found.common if row.figure == "errors")
    assert errors.x == 600.0, "as far as the slow one came"
    assert errors.values[0] == 0.05
    assert errors.values[1] > 0.1, "the fast one had seen half as many games by then"


@pytest.mark.parametrize(
    ("runs", "error", "said"),
    [
        ([{"name": "a"}, {"name": "b", "game": "othello"}], InvalidRequest, "a learns connect_four, b learns othello"),
    ],
)
def test_what_cannot_be_compared_is_one_line(runs: list[dict[str, object]], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        compare(courses(*runs), "minutes")


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a"], [f"run{number}" for number in range(9)]])
def test_two_to_eight_runs_are_compared(names: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="needs two to 8 runs"):
        checked(names)


def test_a_run_without_a_past_is_named() -> None:
    one, other = courses({"name": "a"}, {"name": "b"})
    with pytest.raises(NotFound, match="of run b that could be compared"):
        compare([one, dataclasses.replace(other, points=[], weights=[], grades=[], ratings=[])], "minutes")
    with pytest.raises(NotFound, match="over games"):
        compare([one, dataclasses.replace(other, points=[])], "games")


def test_over_rest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant()
    plant_run(site.ledger, site.bus, "second", num_simulations=32)
    client = TestClient(site.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found = client.get(f"/v1/compare?runs={RUN},second&by=steps").json()
    assert [run["run"] for run in found["runs"]] == [RUN, "second"]
    assert found["runs"][1]["curves"]["errors"][0].keys() == {"x", "y", "low", "high", "weight_version"}
    assert {"setting": "search.num_simulations", "values": [64, 32]} in found["settings"]
    assert client.get(f"/v1/compare?runs={RUN}").status_code == 422
    assert client.get(f"/v1/compare?runs={RUN},nope").status_code == 404
    assert client.get(f"/v1/compare?runs={RUN},second&by=days").status_code == 422


def test_the_list_of_weights_says_how_good_each_is_and_who_serves_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    plant_run(site.ledger, site.bus, "second")
    site.beat("inference", "inference@south:4", "south", weight_versions={"second": 5})
    client = TestClient(site.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found = client.get("/v1/runs/second/weights").json()
    told = [[row[name] for name in ("version", "errors", "graded_positions", "served_by")] for row in found[:2]]
    assert told == [[5, 10, 200, 1], [4, 20, 200, 0]]
    assert found[0]["elo_low"] < found[0]["elo"] < found[0]["elo_high"]
    lines = [weights_row(WeightsOut.model_validate(row)) for row in found]
    assert "errors 5.0% of 200" in lines[0]
    assert "served by 1" in lines[0]
    assert "Elo" in lines[4]
