"""What is traced follows from ids alone and leaves a process as OTLP; and nothing is, or is loaded, where that is not set."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from azq.config.host import TracingConfig
from azq.errors import ConfigError, MissingExtra
from azq.process import spans
from azq.tracing import FINISH, SLICE, TRACES, WEIGHT_VERSION, span_of, trace_of

GAME, WEIGHTS = trace_of("game", "first", 1_700_000_000_000, 12), trace_of("weights", "ab")


@pytest.fixture(autouse=True)
def _ends():
    yield
    TRACES.stop()


def record():
    TRACES.add((FINISH,), [GAME], 5, 9, below=(SLICE,), links={WEIGHTS: WEIGHT_VERSION}, plies=7)


def test_a_game_in_a_thousand_is_traced_and_of_requests_ten_times_as_many():
    TRACES.start(lambda span: None, 0.001)
    games, requests = (len(TRACES.sampled("it", numbers=range(100_000), times=times)) for times in (1.0, 10.0))
    assert 60 < games < 140
    assert 600 < requests < 1400


def test_processes_that_share_a_file_write_lines_that_collectors_and_jaeger_read(tmp_path):
    file = tmp_path / "traces.jsonl"
    for role in ("worker", "learner"):
        spans.start(TracingConfig(to=str(file), share=1.0), role)
        record()
    first, second = (json.loads(line)["resourceSpans"][0] for line in file.read_text("utf-8").splitlines())
    assert first["resource"]["attributes"][0] == {"key": "service.name", "value": {"stringValue": "azq-worker"}}
    assert first["scopeSpans"] == second["scopeSpans"]
    (span,) = first["scopeSpans"][0]["spans"]
    assert span.pop("attributes")[:2] == [
        {"key": "azq.plies", "value": {"intValue": "7"}},
        {"key": "messaging.system", "value": {"stringValue": "redis"}},
    ]
    ids = {"traceId": "f046af220f69290a560b481978313412", "spanId": "98e3a08315aa4154", "parentSpanId": span_of(GAME, SLICE).hex()}
    links = [{"traceId": WEIGHTS.hex(), "spanId": span_of(WEIGHTS, WEIGHT_VERSION).hex()}]
    assert span == {**ids, "name": FINISH, "kind": 4, "startTimeUnixNano": "5", "endTimeUnixNano": "9", "links": links}


@pytest.mark.slow
def test_the_sdk_exports_the_same():
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory = InMemorySpanExporter()
    TRACES.start(spans.into(SimpleSpanProcessor(memory), {"service.name": "azq-worker"}), 1.0)
    record()
    (part,) = encoder.encode_spans(memory.get_finished_spans()).resource_spans
    (sent,), (link,) = part.scope_spans[0].spans, part.scope_spans[0].spans[0].links
    assert (sent.trace_id, sent.span_id, sent.parent_span_id) == (GAME, span_of(GAME, FINISH), span_of(GAME, SLICE))
    assert (link.trace_id, link.span_id) == (WEIGHTS, span_of(WEIGHTS, WEIGHT_VERSION))
    assert (sent.name, sent.kind, sent.start_time_unix_nano, sent.end_time_unix_nano) == (FINISH, 4, 5, 9)
    assert (part.resource.attributes[0].value.string_value, sent.attributes[0].value.int_value) == ("azq-worker", 7)


def test_a_place_that_takes_no_spans_is_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"tracing\.to = .*nowhere.*name a file in a folder that is there"):
        spans.start(TracingConfig(to=str(tmp_path / "nowhere" / "file")), "worker")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"pip install 'azq\[otel\]'"):
        spans.start(TracingConfig(to="http://127.0.0.1:4318/v1/traces"), "worker")
    assert not TRACES.on


def test_services_trace_nothing_and_need_nothing_of_opentelemetry_unless_it_is_set():
    script = """import sys; sys.modules["opentelemetry"] = None
import daemon.main, workers.worker, workers.selfplay, workers.inference, workers.learner
from azq.config.host import TracingConfig
from azq.process import spans
from azq.tracing import TRACES
spans.start(TracingConfig(), "worker")
print(TRACES.on, TRACES.sampled("game", numbers=range(1000)), *(name for name in sys.modules if name.startswith("opentelemetry.")))"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False []\n"
