"""`ops/bench/time_to_strength.py` from nothing to a target that a small network reaches within seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE_S

SCRIPT = Path(__file__).parents[2] / "ops" / "bench" / "time_to_strength.py"
SMALL = ["network.blocks=1", "network.channels=16", "selfplay.games_in_flight=128", "learner.min_window=1000", "learner.publish_every_s=1"]


@pytest.mark.release
def test_a_small_network_reaches_an_easy_target(tmp_path: Path) -> None:
    settings = [word for text in (*SMALL, "arena.every_s=0", "search.num_simulations=16") for word in ("--set", text)]
    chosen = ["--target", "0.55", "--num-simulations", "16", "--minutes", "1.5", "--count", "60", "--every-s", "3"]
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, out, *chosen, *settings], capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    run = json.loads(out.read_text())
    last = run["rows"][-1]
    assert last["error_share"] <= 0.55
    assert last["low"] <= last["error_share"] == pytest.approx(len(last["wrong"]) / 60, abs=1e-4)
    assert run["reached_s"] == last["seconds"] < run["wall_s"]
    assert run["games"] > 0
    assert min(run["cpu_s"].values()) > 0
