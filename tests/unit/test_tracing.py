"""What is traced follows from ids alone; and nothing is, or is loaded, where that is not set."""

from __future__ import annotations

import subprocess
import sys

import pytest

from azq.tracing import FINISH, SLICE, TRACES, span_of, trace_of

SERVICES = "daemon.main, workers.worker, workers.selfplay, workers.inference, workers.learner, azq.process.spans"


@pytest.fixture(autouse=True)
def _ends():
    yield
    TRACES.stop()


def test_processes_that_share_nothing_call_a_span_the_same():
    trace = trace_of("game", "first", 1_700_000_000_000, 12)
    assert (trace.hex(), span_of(trace, FINISH).hex()) == ("f046af220f69290a560b481978313412", "98e3a08315aa4154")
    assert span_of(trace, SLICE, "first:1", 1) != span_of(trace, SLICE, "first:1", 2)


def test_a_game_in_a_thousand_is_traced_and_of_requests_ten_times_as_many():
    TRACES.start(lambda span: None, 0.001)
    traces = [trace_of("game", "first", 1, uid) for uid in range(1, 100_001)]
    assert TRACES.games("first", 1, range(1, 100_001)) == [trace for trace in traces if TRACES.takes(trace)]
    assert 60 < sum(map(TRACES.takes, traces)) < 140
    assert 600 < sum(TRACES.takes(trace, 10.0) for trace in traces) < 1400


def test_services_trace_nothing_and_need_nothing_of_opentelemetry_unless_it_is_set():
    script = f"""import sys; sys.modules["opentelemetry"] = None
import {SERVICES}
from azq.config.host import TracingConfig
azq.process.spans.start(TracingConfig(), "worker")
print(azq.tracing.TRACES.on, *(name for name, module in sys.modules.items() if name.startswith("opentelemetry") and module))"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"
    TRACES.add((FINISH,), [b""], 1)
    assert TRACES.games("first", 1, range(1000)) == []
