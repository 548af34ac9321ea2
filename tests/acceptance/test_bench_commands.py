"""The benchmarks run and print the figures they promise; nothing is asserted of their size. The longer ones are for CI (`-m slow`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import azq, azq_here
from waiting import PATIENCE_S

from azq.parts.lab.bench.plan import cases, parts
from azq.parts.lab.bench.rig import command_of
from azq.parts.lab.bench.suite import described, measure_part

SMALL = ["--set", "selfplay.games_in_flight=64", "--set", "selfplay.cache_entries=1024"]


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    done = azq(folder, "bench", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    figures: dict[str, Any] = json.loads(line)
    return figures


def test_search(tmp_path: Path) -> None:
    assert bench(tmp_path, "search", "--seconds", "0.5")["simulations_per_cpu_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", ["stream", "local"])
def test_selfplay(tmp_path: Path, evaluator: str) -> None:
    figures = bench(tmp_path, "selfplay", "--evaluator", evaluator, "--seconds", "1.5", *SMALL)
    assert figures["evaluator"] == evaluator
    for name in ("simulations_per_cpu_s", "evaluations_per_cpu_s", "network_cpu_share", "search_cpu_share", "mean_batch"):
        assert figures[name] > 0, name
    assert figures["games_per_cpu_min"] >= 0
    assert figures["network_cpu_share"] <= 1


@pytest.mark.slow
def test_inference(tmp_path: Path) -> None:
    assert bench(tmp_path, "inference", "--seconds", "0.5", *SMALL)["stream_share_of_bare"] > 0


@pytest.mark.slow
def test_two_processes_play_side_by_side(tmp_path: Path) -> None:
    task = {"kind": "selfplay", "case": described(cases("tiny")[0]), "num_simulations": 8, "seconds": 3.0, "device": "cpu"}
    command = command_of(measure_part, **task, overrides=["worker.concurrency=2", "selfplay.journal_s=1"])
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S, check=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["processes"], figures["threads"]) == (2, 1)
    assert 8 < figures["mean_batch"] <= 16  # half of the case's batch each
    assert figures["games_per_s"] > 0


def test_an_evaluator_that_is_none_is_refused(tmp_path: Path) -> None:
    done = azq_here(tmp_path, "bench", "selfplay", "--evaluator", "magic")
    assert done.returncode == 2
    assert "magic" in done.stderr


@pytest.mark.slow
def test_everything_at_once_measures_what_fits_and_names_the_rest(tmp_path: Path) -> None:
    docs = tmp_path / "page.md"
    docs.write_text("<!-- bench all: begin -->\n<!-- bench all: end -->\n")
    asked = ["all", "--size", "tiny", "--minutes", "0.3", "--device", "cpu", "--out", str(tmp_path / "out"), "--write-docs", str(docs)]
    found = bench(tmp_path, *asked)
    first = found["parts"]["network/connect four 1x8"]
    assert first["bare_evaluations_per_s"] > 0
    assert first["stream_evaluations_per_cpu_s"] > 0
    todo = {part.name for part in parts("tiny", cases("tiny"), on_gpu=False, peers=())}
    assert todo <= {*found["parts"], *found["left_out"]}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"bench.json", "bench.md"}
    assert "connect four 1x8, 32" in docs.read_text()
