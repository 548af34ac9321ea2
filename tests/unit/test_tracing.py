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
    assert (trace.hex(), span_of(trace, FINISH).hex()) == ("TRACE", "SPAN")
    assert span_of(trace, SLICE, "first:1", 1) != span_of(trace, SLICE, "first:1", 2)


def test_a_game_in_a_thousand_is_traced_and_of_requests_ten_times_as_many():
    TRACES.start(lambda span: None, 0.001)
    traces = [trace_of("game", "first", 1, uid) for uid in range(1, 100_001)]
    assert TRACES.games("first", 1, range(1, 100_001)) == [trace for trace in traces if TRACES.takes(trace)]
    assert 60 < sum(map(TRACES.takes, traces)) < 140
    assert 600 < sum(TRACES.takes(trace, 10.0) for trace in traces) < 1400


def test_services_trace_nothing_and_load_nothing_of_opentelemetry_unless_it_is_set():
    script = f"import sys, {SERVICES}; from azq.config.host import TracingConfig; azq.process.spans.start(TracingConfig(), 'worker')"
    loaded = subprocess.run([sys.executable, "-c", f"{script}; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert [name for name in loaded.stdout.split() if name.startswith("opentelemetry")] == []
    TRACES.add((FINISH,), [b""], 1)
    assert TRACES.games("first", 1, range(1000)) == []
