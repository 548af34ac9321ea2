"""Spans leave a process as OTLP: into a file that processes share, or through OpenTelemetry's SDK."""

from __future__ import annotations

import json
import sys

import pytest

from azq.config.host import TracingConfig
from azq.errors import ConfigError, MissingExtra
from azq.process import spans
from azq.tracing import FINISH, SLICE, TRACES, WEIGHT_VERSION, span_of, trace_of

GAME, WEIGHTS = trace_of("game", "first", 1, 2), trace_of("weights", "ab")
LINK = WEIGHTS, span_of(WEIGHTS, WEIGHT_VERSION)


@pytest.fixture(autouse=True)
def _ends():
    yield
    TRACES.stop()


def record():
    TRACES.add((FINISH,), [GAME], 5, 9, below=(SLICE,), links=[LINK], plies=7)


def test_a_file_gets_lines_that_collectors_and_jaeger_read(tmp_path):
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
    ids = {"traceId": GAME.hex(), "spanId": span_of(GAME, FINISH).hex(), "parentSpanId": span_of(GAME, SLICE).hex()}
    links = [{"traceId": WEIGHTS.hex(), "spanId": LINK[1].hex()}]
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
    assert (part.resource.attributes[0].key, part.resource.attributes[0].value.string_value) == ("service.name", "azq-worker")
    (sent,) = part.scope_spans[0].spans
    assert (sent.trace_id, sent.span_id, sent.parent_span_id) == (GAME, span_of(GAME, FINISH), span_of(GAME, SLICE))
    assert [(link.trace_id, link.span_id) for link in sent.links] == [LINK]
    assert (sent.name, sent.kind, sent.start_time_unix_nano, sent.end_time_unix_nano) == (FINISH, 4, 5, 9)
    assert sent.attributes[0].value.int_value == 7


def test_a_place_that_takes_no_spans_is_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"tracing\.to = .*nowhere.*name a file in a folder that is there"):
        spans.start(TracingConfig(to=str(tmp_path / "nowhere" / "file")), "worker")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra, match=r"pip install 'azq\[otel\]'"):
        spans.start(TracingConfig(to="http://127.0.0.1:4318/v1/traces"), "worker")
    assert not TRACES.on
