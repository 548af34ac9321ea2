"""A whole run on a GPU that is none: `azq up`, its inference and learner on the fake device, through swaps to the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fake_cuda
import pytest
from run_logs import events

import azq

RUN = "faked"
SETTINGS = (
    "inference.device=cuda:0",
    "inference.max_batch=64",
    "learner.device=cuda",  # without a number, as operators write it
    'network.kind="resnet"',
    "network.blocks=1",
    "network.channels=16",
    "learner.min_window=500",
    "learner.batch_size=64",
    "learner.publish_every_s=1",
    "selfplay.games_in_flight=128",
    "selfplay.slice_s=2",
    "selfplay.cache_entries=0",
    "search.num_simulations=8",
    "arena.every_s=0",
)


@pytest.mark.slow
def test_a_run_learns_and_drains_on_a_fake_gpu(tmp_path: Path) -> None:
    environ = {"AZQ_LOG": "json", "PYTHONPATH": str(Path(fake_cuda.__file__).with_name("fake_cuda_site"))}
    with azq.Local("tic_tac_toe", run=RUN, settings=SETTINGS, options=["--until", "steps=700"], folder=tmp_path, environ=environ) as run:
        last = run.wait(minutes=6)
    folder = tmp_path / RUN
    assert len(events(folder, "inference", "way_chosen")) == 1  # whatever the versions
    assert {event["way"] for event in events(folder, "inference", "way_chosen")} <= {"fused", "plain"}
    assert events(folder, "inference", "recording_graphs")[0]["device"] == "cuda:0"
    for role, name in (("inference", "forward_pass_failed"), ("inference", "way_skipped"), ("inference", "weights_refused")):
        assert not events(folder, role, name)
    published = [event["version"] for event in events(folder, "learner", "weights_published")]
    switched = [event["version"] for event in events(folder, "inference", "weights_switched")]
    assert len(switched) >= len(published) // 2
    assert events(folder, "learner", "learner_stopped")
    assert events(folder, "inference", "stopped")
    assert last.state == "finished"
    assert last.ledger.balanced
    assert last.ledger.finished > 100


@pytest.mark.slow
def test_all_ways_to_run_a_network_are_measured_by_the_script_for_gpus(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "ops" / "bench" / "gpu_network.py"
    command = [sys.executable, str(script), "--blocks=1", "--channels=16", "--batch=64", "--seconds=0.3"]
    site = Path(fake_cuda.__file__).with_name("fake_cuda_site")
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True, timeout=380, check=True)
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    *ways, whole = figures
    assert [one["way"] for one in ways] == ["fused", "compiled", "plain"]
    fused, compiled, plain = ways
    assert all(one["evaluations_per_s"] > 0 and one["kernels"] for one in (fused, plain))
    assert compiled.get("evaluations_per_s", 0) > 0 or "torch.compile" in compiled["failed"]  # which refuses the fake's dispatch modes
    assert whole["fastest"] in ("fused", "compiled", "plain")
