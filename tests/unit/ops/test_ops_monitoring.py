"""Alert rules and boards name only metrics and labels that the daemon exposes, and every alert has its runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import heartbeat

from azq import metrics, phases
from azq.ledger.types import JobState, JobView, LedgerCounts, RunState, RunView
from azq.ratings.elo import Rating
from azq.status.brokers import PlaneFacts
from azq.status.strength import Standing
from azq.status.summary import RunFacts, summarise
from azq.wire.kinds import Kind
from azq.wire.messages import GradeResult, Job, LearnerStatus, RankStatus, RunRecord
from daemon.api import figures
from daemon.serve.health import Health

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "ops" / "prometheus" / "alerts.yml"
BOARDS = sorted((ROOT / "ops" / "grafana" / "dashboards").glob("*.json"))
SCRAPED = {"instance", "job"}  # what Prometheus adds by itself
BUILT_IN = {"up"}
#: words of PromQL that a name may be mistaken for
KEYWORDS = {"on", "by", "and", "or", "unless", "ignoring", "without", "group_left", "group_right", "bool"}
MATCHED = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>[^}]*)\})?")
GROUPING = re.compile(r"\b(?:on|by|ignoring|without)\s*\((?P<labels>[^)]*)\)")


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Every metric of a fleet in which everything has happened, with its labels."""
    everything = {figure.name: 1.0 for figure in metrics.FIGURES}
    quantiles = {metrics.at_quantile(figure.name, at): 1.0 for figure in metrics.FIGURES for at in metrics.QUANTILES}
    spent = {prefix + phases.OTHER: 1.0 for prefix in phases.PREFIXES}
    beats = [
        heartbeat(role, role, queues=("selfplay.cpu",), rates=everything | quantiles | spent)
        for role in ("selfplay", "inference", "learner", "daemon")
    ]
    learner = LearnerStatus(9, 9, 9, 9, 0, 9, 1.0, 1.0, 0.1, 2, False, False, 9.0, 0, each_rank=(RankStatus(),))
    record = RunRecord("r", b"{}", {}, "/runs/r", 0)
    view = RunView(record, RunState.RUNNING, "", 0, 0)
    grade = GradeResult(2, 9, 9, 1, 0)
    job = JobView(Job("r:1", "r", Kind.SELFPLAY, "cpu"), JobState.QUEUED, 1, "", 0, 0, 0, 0, 0, "")
    rated = [Rating("weights:2", 1.0, 0.0, 2.0, 8, 4.0)]
    standing = Standing(grades=(grade,), ratings=rated)
    facts = RunFacts(view, LedgerCounts(9, 9, 0, 0, 9, 0, 0), (job,), learner, standing=standing, workers=tuple(beats))
    status = summarise(facts, 0)
    families = [
        *figures.of_daemon(Health().pulse),
        *figures.of_planes([PlaneFacts("control", True, 1, 1, 1, {"r": 1})]),
        *figures.of_jobs(beats, [job]),
        *figures.of_workers(beats, 0),
        *figures.of_runs([status]),
    ]
    found: dict[str, set[str]] = {}
    for family in families:
        assert family.samples, f"{family.name} shows nothing"
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        yield from group["rules"]


def queries() -> list[tuple[str, str]]:
    """(where, PromQL) of every alert and every panel."""
    found = [(str(rule["alert"]), str(rule["expr"])) for rule in rules()]
    for path in BOARDS:
        board = json.loads(path.read_text("utf-8"))
        found += [(f"{path.stem}: {panel['title']}", target["expr"]) for panel in board["panels"] for target in panel["targets"]]
        found += [(f"{path.stem}: ${choice['name']}", choice["query"]["query"]) for choice in board["templating"]["list"]]
    return found


def complaints(query: str, exposed: dict[str, set[str]]) -> list[str]:
    """What of a query does not exist."""
    said, used = [], set(SCRAPED)
    for found in MATCHED.finditer(re.sub(r'"[^"]*"', '""', query)):
        name = found["name"]
        if not name.startswith("azq") or name in BUILT_IN | KEYWORDS:
            continue
        if name not in exposed:
            said.append(f"no metric {name}")
            continue
        used |= exposed[name]
        wanted = set(re.findall(r"(\w+)\s*[=!]", found["labels"] or ""))
        said += [f"{name} has no label {label}" for label in sorted(wanted - exposed[name] - SCRAPED)]
    grouped = {label.strip() for found in GROUPING.finditer(query) for label in found["labels"].split(",")}
    return said + [f"no metric of the query has label {label}" for label in sorted(grouped - used)]


def test_alerts_and_boards_ask_only_for_what_exists(exposed: dict[str, set[str]]) -> None:
    asked = queries()
    assert len(asked) > 60
    assert {where: said for where, query in asked if (said := complaints(query, exposed))} == {}


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("rate(azq_games_lost_total[5m])", "azq_games_lost_total"),
        ('azq_elo{game="hex"}', "label game"),
        ("azq_games_per_s == 0 and on (queue) azq_elo", "label queue"),
    ],
)
def test_a_query_that_names_what_does_not_exist_is_found(query: str, word: str, exposed: dict[str, set[str]]) -> None:
    assert any(word in said for said in complaints(query, exposed))


def test_every_exposed_figure_is_on_a_board_or_behind_an_alert(exposed: dict[str, set[str]]) -> None:
    shown = " ".join(query for _, query in queries())
    assert [
        name for name in exposed if name not in shown and not name.startswith(("azq_worker_", "azq_progress", "azq_learner_step"))
    ] == []


def test_labels_in_an_alerts_text_are_labels_of_its_metrics(exposed: dict[str, set[str]]) -> None:
    for rule in rules():
        labels = set().union(SCRAPED, *(exposed.get(name, set()) for name in re.findall(r"\w+", rule["expr"])))
        said = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]["summary"])))
        assert said <= labels, rule["alert"]


def test_every_alert_has_a_runbook_section_and_every_section_an_alert() -> None:
    page = (ROOT / "docs" / "5-operations.md").read_text("utf-8")
    titles = set(re.findall(r"^### (Azq\w+)$", page, re.MULTILINE))
    assert {rule["annotations"]["runbook_url"] for rule in rules()} == {f"docs/5-operations.md#{title.lower()}" for title in titles}
    assert {rule["alert"] for rule in rules()} == titles
    for title in titles:
        section = page.partition(f"### {title}\n")[2].partition("\n#")[0]
        assert all(word in section for word in ("**Seen:**", "**Why:**", "**Do:**")), title


def test_the_boards_are_those_that_their_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "ops" / "grafana" / "make_boards.py", tmp_path], check=True)
    made = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text("utf-8") for path in BOARDS}, "run ops/grafana/make_boards.py"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed")
@pytest.mark.parametrize("arguments", [("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")])
def test_prometheus_accepts_the_rules_and_they_fire_when_they_should(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=ALERTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
