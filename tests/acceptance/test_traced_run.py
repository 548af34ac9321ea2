"""One game, one trace: through every process of a run, to the weights that learned from it and those who took them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from recovering import SMALL, trains
from waiting import PATIENCE_S

from azq import Local
from azq import tracing as names

WAY = (names.RECONCILE, names.SEND_JOB, names.SLICE, names.FINISH, names.SAMPLE_EVENT, names.STEP, names.WEIGHT_VERSION)
BELOW = {names.RECONCILE: "", names.EVALUATE: names.SLICE} | dict(zip(WAY[1:], WAY, strict=False))
SETTINGS = ("tracing.share=1", "worker.evaluator=stream", "learner.publish_every_s=1")


def read(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Spans with their `service`, by trace and own number."""
    spans = {}
    for line in file.read_text("utf-8").rpartition("\n")[0].splitlines():
        (part,) = json.loads(line)["resourceSpans"]
        (span,) = part["scopeSpans"][0]["spans"]
        spans[span["traceId"], span["spanId"]] = {**span, "service": part["resource"]["attributes"][0]["value"]["stringValue"]}
    return spans


@pytest.mark.slow
def test_a_games_trace_has_every_step_of_its_way(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    with Local("tic_tac_toe", run="first", settings=(*SMALL, *SETTINGS, f"tracing.to={file}"), folder=tmp_path) as run:
        trains(run, 200)
        run.until(lambda: f'"{names.SWITCH}"' in file.read_text("utf-8"), "a switch", PATIENCE_S)
    spans, names_of = read(file), defaultdict[str, Counter[str]](Counter)
    for span in spans.values():
        names_of[span["traceId"]][span["name"]] += 1
    whole = {trace for trace, there in names_of.items() if set(there) == set(BELOW) and there[names.SLICE] == 1}  # adopted by none
    assert whole
    ways = [span for span in spans.values() if span["traceId"] in whole]
    for span in ways:
        assert BELOW[span["name"]] == (spans[span["traceId"], span["parentSpanId"]]["name"] if span["parentSpanId"] else "")
    linked = [(span["name"], spans.get((link["traceId"], link["spanId"]))) for span in ways for link in span["links"]]
    assert {(to["name"], to["service"]) for name, to in linked if name == names.EVALUATE and to} == {(names.BATCH, "azq-inference")}
    versions = {to["traceId"] for name, to in linked if name == names.WEIGHT_VERSION and to}
    switches = [span for span in spans.values() if span["name"] == names.SWITCH and span["traceId"] in versions]
    assert {spans[span["traceId"], span["parentSpanId"]]["name"] for span in switches} == {names.WEIGHT_VERSION}
