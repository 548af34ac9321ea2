"""The benchmarks run and say what they measured; no figure is asserted by the clock."""

from __future__ import annotations

from inference_doubles import CONFIG, NETWORK, SPEC

from azq.bench.forward import BENCH_RUN, bench_bus, bench_inference
from azq.bus.redis import RedisBus
from azq.wire import keys


def test_inference(broker):
    figures = bench_inference(CONFIG, NETWORK, SPEC, broker.control_url, broker.data_url, game="connect_four", seconds=0.3, batch=32)
    assert set(figures) == {
        "batch",
        "bare_evaluations_per_s",
        "bare_evaluations_per_cpu_s",
        "stream_evaluations_per_s",
        "stream_evaluations_per_cpu_s",
        "stream_share_of_bare",
    }
    assert all(value > 0 for value in figures.values())
    bus = RedisBus(broker.control_url)
    assert bus.length(keys.weights(BENCH_RUN)) == 0
    bus.close()


def test_bus(broker):
    figures = bench_bus(broker.data_url, seconds=0.3, request_bytes=4096)
    assert set(figures) == {"request_bytes", "requests_per_s", "p50_ms", "p99_ms", "cpu_us_per_request"}
    assert 0 < figures["p50_ms"] <= figures["p99_ms"]
