"""`azq bench weights` publishes to real workers, through every kind of store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from azq.config import Config
from azq.errors import ConfigError
from azq.parts.lab.bench.weights import bench_weights


@pytest.mark.release
def test_weights_reach_every_worker_through_every_store(tmp_path: Path) -> None:
    pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    command = [sys.executable, "-m", "azq", "bench", "weights", "--publications", "2", "--set", "inference.threads=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=180)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    for store in ("file", "redis", "s3"):
        assert figures[f"{store}_parameters"] == pytest.approx(1.6e6, rel=0.01)
        assert 0 < figures[f"{store}_p50_ms"] <= figures[f"{store}_p99_ms"]
        assert figures[f"{store}_answers"] > 0


def test_a_store_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="tape"):
        bench_weights(Config(), workers=1, publications=2, stores=("tape",))
