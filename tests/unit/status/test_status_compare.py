"""Runs beside each other, over the doubles and over REST."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from run_courses import courses, plant_run

from azq.console.remote import weights_row
from azq.errors import InvalidRequest, NotFound
from azq.samples.diff import TOO_FEW
from azq.status.compare import SettingDifference, checked, compare
from azq.status.curves import Course
from azq.status.schemas import WeightsOut
from azq.wire.messages import GradeResult


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


def graded(course: Course, marks: bytes, version: int = 9) -> Course:
    """A run whose newest graded weights got these marks."""
    return dataclasses.replace(course, grades=[GradeResult(version + 1, 64, 9, 0, 0), GradeResult(version, 64, 9, 0, 0, marks=marks)])


def test_newest_weights_are_paired_on_the_positions_that_both_were_graded_on() -> None:
    one, other = courses({"name": "a"}, {"name": "b"})
    (pair,) = compare([graded(one, bytes([2, 2, 1, 2, 0, 1])), graded(other, bytes([2, 1, 1, 1, 2, 0]), 4)], "minutes").graded
    assert (pair.run, pair.weight_versions, pair.positions) == ("b", (9, 4), 4)
    assert pair.errors == (0.75, 0.25)
    assert pair.difference == -0.5
    assert pair.low is not None
    assert pair.low < -0.5 < (pair.high or 0)


@pytest.mark.parametrize(("marks", "found"), [(b"", []), (bytes(6), []), (bytes([2, 2]), []), (bytes([0, 0, 1, 0, 0, 0]), [(1, None)])])
def test_what_was_graded_on_nothing_in_common_is_not_paired(marks: bytes, found: list[tuple[int, None]]) -> None:
    one, other = courses({"name": "a"}, {"name": "b"})
    compared = compare([graded(one, bytes([2, 2, 1, 2, 0, 1])), graded(other, marks)], "minutes")
    assert [(pair.positions, pair.low) for pair in compared.graded] == found


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
    assert found["graded"] == []
    assert client.get(f"/v1/compare?runs={RUN}").status_code == 422
    assert client.get(f"/v1/compare?runs={RUN},nope").status_code == 404
    assert client.get(f"/v1/compare?runs={RUN},second&by=days").status_code == 422


def test_recorded_games_over_rest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant()
    for name, game in (("second", "connect_four"), ("discs", "othello")):
        plant_run(site.ledger, site.bus, name, game=game)
    record = msgspec.structs.replace(site.ledger.run(RUN).record, run="twin")
    site.ledger.create_run(record)
    client = TestClient(site.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found = client.get(f"/v1/compare/samples?runs={RUN},twin&games=30").json()["twin"]
    assert found["games"][0] == found["games"][1] > 1
    assert max(row["distance"] for row in found["figures"]) < 1e-9
    elsewhere = client.get(f"/v1/compare/samples?runs={RUN},second").json()["second"]
    assert (elsewhere["games"][1], elsewhere["verdict"]) == (0, TOO_FEW)
    for other, status, said in (("discs", 422, "different games"), ("nope", 404, "nope")):
        refused = client.get(f"/v1/compare/samples?runs={RUN},{other}")
        assert (refused.status_code, said in refused.json()["detail"]) == (status, True)


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
