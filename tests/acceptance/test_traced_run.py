"""One game, one trace: through every process of a run, to the weights that learned from it and those who took them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from recovering import SMALL, trains
from waiting import PATIENCE_S

from azq import Local
from azq import tracing as names

WAY = {
    names.RECONCILE: "",
    names.SEND_JOB: names.RECONCILE,
    names.SLICE: names.SEND_JOB,
    names.EVALUATE: names.SLICE,
    names.FINISH: names.SLICE,
    names.SAMPLE_EVENT: names.FINISH,
    names.STEP: names.SAMPLE_EVENT,
    names.WEIGHT_VERSION: names.STEP,
}
SETTINGS = ("tracing.share=1", "worker.evaluator=stream", "learner.publish_every_s=1")
Spans = dict[str, dict[str, Any]]  # of a trace, by id; a span with its `service`


def read(file: Path) -> dict[str, Spans]:
    traces: dict[str, Spans] = defaultdict(dict)
    for line in file.read_text("utf-8").rpartition("\n")[0].splitlines():
        (part,) = json.loads(line)["resourceSpans"]
        (span,) = part["scopeSpans"][0]["spans"]
        traces[span["traceId"]][span["spanId"]] = {**span, "service": part["resource"]["attributes"][0]["value"]["stringValue"]}
    return traces


def linked(traces: dict[str, Spans], spans: Iterable[Spans], name: str) -> list[dict[str, Any]]:
    """What those of a name link to, as far as it was recorded."""
    links = [link for ids in spans for span in ids.values() if span["name"] == name for link in span["links"]]
    return [traces[link["traceId"]][link["spanId"]] for link in links if link["spanId"] in traces.get(link["traceId"], {})]


@pytest.mark.slow
def test_a_games_trace_has_every_step_of_its_way(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    with Local("tic_tac_toe", run="first", settings=(*SMALL, *SETTINGS, f"tracing.to={file}"), folder=tmp_path) as run:
        trains(run, 200)
        run.until(lambda: f'"{names.SWITCH}"' in file.read_text("utf-8"), "a switch", PATIENCE_S)
    traces = read(file)
    names_of = {trace: Counter(span["name"] for span in ids.values()) for trace, ids in traces.items()}
    whole = [traces[trace] for trace, there in names_of.items() if set(there) == set(WAY) and there[names.SLICE] == 1]  # adopted by none
    assert whole
    for ids in whole:
        for span in ids.values():
            assert WAY[span["name"]] == (ids[span["parentSpanId"]]["name"] if span["parentSpanId"] else "")
    assert {(span["name"], span["service"]) for span in linked(traces, whole, names.EVALUATE)} == {(names.BATCH, "azq-inference")}
    versions = [traces[span["traceId"]] for span in linked(traces, whole, names.WEIGHT_VERSION)]
    switches = [span for ids in versions for span in ids.values() if span["name"] == names.SWITCH]
    assert {traces[span["traceId"]][span["parentSpanId"]]["name"] for span in switches} == {names.WEIGHT_VERSION}
