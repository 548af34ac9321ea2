"""Where a process's spans go: into a file, as lines of OTLP JSON that OpenTelemetry's collector and Jaeger read, or to a collector."""

from __future__ import annotations

import atexit
import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from azq.config.host import TracingConfig
from azq.errors import ConfigError, MissingExtra
from azq.tracing import TRACES, TraceSpan

PATIENCE_S = 2.0  # with a collector; a process that ends waits for what is on its way


def start(config: TracingConfig, role: str) -> None:
    """Traces what this process does, and its forks. Raises `ConfigError` for a file that cannot be written, `MissingExtra`."""
    service = {"service.name": f"azq-{role}", "host.name": socket.gethostname()}
    if "://" in config.to:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise MissingExtra("tracing.to is a collector, which needs OpenTelemetry's exporter; pip install 'azq[otel]'") from None
        processor = BatchSpanProcessor(OTLPSpanExporter(config.to, timeout=PATIENCE_S))
        TRACES.start(into(processor, service), config.share, processor.shutdown)
        atexit.register(TRACES.stop)
    elif config.to:
        try:
            file = os.open(config.to, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"tracing.to = {config.to} cannot be written: {error}; name a file in a folder that is there") from None
        TRACES.start(partial(_write, file, service), config.share)


def into(processor: Any, service: Mapping[str, str]) -> Callable[[TraceSpan], None]:
    """Records spans with a processor of OpenTelemetry's SDK."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

    resource, sampled = Resource(service), TraceFlags(TraceFlags.SAMPLED)

    def place(ids: Mapping[str, str], number: str = "spanId") -> SpanContext:
        return SpanContext(int(ids["traceId"], 16), int(ids[number], 16), is_remote=True, trace_flags=sampled)

    def record(span: TraceSpan) -> None:
        parent = place(span, "parentSpanId") if span["parentSpanId"] else None
        more: dict[str, Any] = {"start_time": int(span["startTimeUnixNano"]), "end_time": int(span["endTimeUnixNano"])}
        more |= {"links": [Link(place(other)) for other in span["links"]], "kind": SpanKind(span["kind"] - 1)}  # of OTLP's kinds 0 is none
        processor.on_end(ReadableSpan(span["name"], place(span), parent, resource, span["attributes"], **more))

    return record


def _write(file: int, service: Mapping[str, str], span: TraceSpan) -> None:
    scopes = [{"scope": {"name": "azq"}, "spans": [{**span, "attributes": _pairs(span["attributes"])}]}]
    line = json.dumps({"resourceSpans": [{"resource": {"attributes": _pairs(service)}, "scopeSpans": scopes}]})
    with suppress(OSError):  # a full disk costs spans, and no games
        os.write(file, line.encode() + b"\n")  # at once: processes share the file


def _pairs(values: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {f"{'int' if type(value) is int else 'string'}Value": str(value)}} for key, value in values.items()]
