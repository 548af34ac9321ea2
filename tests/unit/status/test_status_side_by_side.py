"""Runs side by side on one control plane: no figure of one, and none of the fleet's, stands at another, wherever it is shown."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from side_by_side import DIGIT, FINISHED, GREW, GREW_S, PAUSED, REASON, RUNNING, SideBySide

from azq.console import table, top
from azq.status.history import read
from azq.status.observe import gather
from azq.status.summary import RunStatus, summarise

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
    yield drawn(top.runs_table([status]))


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
