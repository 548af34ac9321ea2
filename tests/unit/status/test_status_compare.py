"""Runs beside each other: curves, settings, graded positions."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from run_courses import courses, plant_run
from side_by_side import DIGIT, FINISHED, GREW, GREW_S, PAUSED, REASON, RUNNING, SideBySide

from azq.console import table
from azq.console.remote import weights_row
from azq.errors import InvalidRequest, NotFound
from azq.samples.diff import TOO_FEW
from azq.status.compare import SettingDifference, checked, compare, same_game
from azq.status.curves import Course
from azq.status.history import read
from azq.status.observe import gather
from azq.status.schemas import WeightsOut
from azq.status.strength import UNRATED, Standing
from azq.status.summary import RunStatus, summarise
from azq.wire.messages import GradeResult, RunRecord


def test_figures_stand_where_all_were_and_settings_that_differ_are_named() -> None:
    found = compare(courses({"name": "slow"}, {"name": "fast", "speed": 2.0, "num_simulations": 32}), "steps")
    assert (found.game, [run.run for run in found.runs]) == ("connect_four", ["slow", "fast"])
    assert found.settings == [SettingDifference("search.num_simulations", [64, 32])]
    errors = next(row for row in found.common if row.figure == "errors")
    assert errors.x == 600.0, "as far as the slow one came"
    assert errors.values[0] == 0.05
    assert errors.values[1] > 0.1, "the fast one had seen half as many games by then"


def test_runs_of_different_games_are_named() -> None:
    with pytest.raises(InvalidRequest, match="a learns connect_four, b learns othello"):
        compare(courses({"name": "a"}, {"name": "b", "game": "othello"}), "minutes")
    sizes = [msgspec.json.encode({"run": {"game": "hex", "params": {"size": size}}}) for size in (5, 7)]
    with pytest.raises(InvalidRequest, match=r"a learns hex {'size': 5}, b learns hex {'size': 7}"):
        same_game(RunRecord("a", sizes[0], {}, "", 0), RunRecord("b", sizes[1], {}, "", 0))


@pytest.mark.parametrize("names", [[], ["a"], ["a", "a"], ["a", "b", "a"], [f"run{number}" for number in range(9)]])
def test_two_to_eight_runs_are_compared(names: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="needs two to 8 runs"):
        checked(names)


def graded(course: Course, marks: bytes, version: int = 9) -> Course:
    """A run whose newest graded weights got these marks."""
    grades = [GradeResult(version + 1, 64, 9, 0, 0), GradeResult(version, 64, 9, 0, 0, marks=marks)]
    return dataclasses.replace(course, standing=Standing(grades=grades))


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
        compare([one, dataclasses.replace(other, points=[], weights=[], standing=UNRATED)], "minutes")
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
    site.plant_beat("inference", "inference@south:4", "south", weight_versions={"second": 5})
    client = TestClient(site.app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    found = client.get("/v1/runs/second/weights").json()
    told = [[row[name] for name in ("version", "errors", "graded_positions", "served_by")] for row in found[:2]]
    assert told == [[5, 10, 200, 1], [4, 20, 200, 0]]
    assert found[0]["elo_low"] < found[0]["elo"] < found[0]["elo_high"]
    lines = [" ".join(weights_row(WeightsOut.model_validate(row))) for row in found]
    assert "errors 5.0% of 200" in lines[0]
    assert "served by 1" in lines[0]
    assert "Elo" in lines[4]


FOREIGN = "5"  # first digit of what the whole fleet does
RATES = (
    "games_per_s",
    "simulations_per_s",
    "evaluations_per_s",
    "samples_per_s",
    "steps_per_s",
    "mean_batch",
    "network_busy",
    "policy_lag",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> SideBySide:
    return SideBySide(tmp_path_factory.mktemp("side"))


@pytest.fixture(scope="module")
def client(site: SideBySide) -> TestClient:
    return TestClient(site.app, base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def statuses(site: SideBySide) -> dict[str, RunStatus]:
    return {run: summarise(gather(site.ledger, site.bus, run), site.now_ms) for run in DIGIT}


def drawn(shown: object) -> str:
    output = io.StringIO()
    Console(file=output, width=250).print(shown)
    return output.getvalue()


def owners(text: str) -> set[str]:
    """The first digits of all numbers of three digits, thousandths and what stands behind a point left out."""
    return {number[0] for number in re.findall(r"(?<![\d.,])\d{3}(?!\d|,\d)", text)} & {*map(str, DIGIT.values()), FOREIGN}


def texts_of(status: RunStatus) -> Iterator[str]:
    yield table.line(status)
    yield drawn(table.panel(status))
    yield drawn(table.runs_table([status]))


@pytest.mark.parametrize("run", DIGIT)
def test_what_stands_at_a_run_is_its_own(run: str, statuses: dict[str, RunStatus], client: TestClient) -> None:
    status, own = statuses[run], str(DIGIT[run])
    texts = list(texts_of(status))
    told = client.get(f"/v1/runs/{run}/status").json()
    assert {name: told[name] for name in RATES} == {name: getattr(status, name) for name in RATES}
    texts += [str({name: value for name, value in told.items() if name not in ("workers", "stages")})]
    texts += [client.get(f"/v1/runs/{run}/{what}").text for what in ("ledger", "cost")]
    for text in texts:
        assert owners(text) <= {own}, text
    assert owners("".join(texts)) == {own}


def test_metrics_tell_each_run_its_own(client: TestClient) -> None:
    found: dict[str, set[str]] = {run: set() for run in DIGIT}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for sample in family.samples:
            if sample.labels.get("run") in found:
                found[sample.labels["run"]] |= owners(f"{sample.value:.6g}")
    assert found == {run: {str(digit)} for run, digit in DIGIT.items()}


def test_only_what_runs_has_rates_and_those_of_its_own_counters(site: SideBySide, statuses: dict[str, RunStatus]) -> None:
    running = statuses[RUNNING]
    assert running.games_per_s == GREW / GREW_S
    assert running.simulations_per_s == running.evaluations_per_s == 10 * GREW / GREW_S
    assert (running.mean_batch, running.network_busy) == (20.0, 0.25)
    for run in (FINISHED, PAUSED):
        assert {getattr(statuses[run], name) for name in RATES} == {0.0}
        assert "/s" not in table.line(statuses[run]) + drawn(table.panel(statuses[run]))
    assert read(site.bus, RUNNING, 0)[-1].games_per_s == running.games_per_s


def test_a_run_that_is_over_shows_what_it_came_to(statuses: dict[str, RunStatus]) -> None:
    status = statuses[FINISHED]
    assert (status.learner_live, status.progress, status.learner_step, status.samples) == (False, pytest.approx(20 / 300), 703, 704)
    assert [(measure.kind, measure.text) for measure in status.measures[:1]] == [("loss", "709.0 millipoints")]
    assert [measure.kind for measure in status.measures] == ["loss", "elo"]
    for run in (FINISHED, PAUSED):
        shown = "".join(texts_of(statuses[run]))
        assert "no learner" not in shown
        assert REASON[run] in shown
        assert "few files left" not in shown
