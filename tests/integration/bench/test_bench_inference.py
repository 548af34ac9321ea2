"""The benchmarks run and say what they measured; no figure is asserted by the clock."""

from __future__ import annotations

from inference_doubles import CONFIG

from azq.config import Config
from azq.parts.lab.bench.inference import bench_inference


def test_inference() -> None:
    figures = bench_inference(Config(inference=CONFIG), seconds=0.3, game="connect_four", batch=32)
    assert set(figures) - {"products_an_evaluation", "peak_products_per_cpu_s", "share_of_integer_peak"} == {  # of some CPUs
        "batch",
        "bare_evaluations_per_s",
        "bare_evaluations_per_cpu_s",
        "stream_evaluations_per_s",
        "stream_evaluations_per_cpu_s",
        "stream_share_of_bare",
        "requests",
        "bare_p50_ms",
        "bare_p99_ms",
        "round_trip_p50_ms",
        "round_trip_p99_ms",
        "added_p50_ms",
        "added_p99_ms",
        "client_phases",
    }
    assert all(value > 0 for name, value in figures.items() if not name.startswith(("added", "client")))
