"""`ops/bench/time_to_strength.py`: its figures as pure functions, and how it looks after the `azq up` that it starts."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from azq.config import load
from azq.presets import preset

SCRIPTS = Path(__file__).parents[3] / "ops" / "bench"

#: stands for `azq up`: publishes a version every 50 ms, says how it went when it is told to stop
FAKE_UP = """
import json, pathlib, signal, sys, time
folder = pathlib.Path("strength/weights"); folder.mkdir(parents=True)
(folder.parent / "logs").mkdir()
slices = ["noise", *(json.dumps({"event": "slice_over", "evaluations": count}) for count in (70, 5))]
(folder.parent / "logs" / "selfplay.log").write_text("\\n".join(slices))
over = []
signal.signal(signal.SIGINT, lambda *_: over.append(1) if sys.argv[1] != "deaf" else None)
for version in range(1, 1000):
    meta = {"game": "tic_tac_toe", "version": version, "schema": 1}
    header = json.dumps({"__metadata__": {"azq": json.dumps(meta)}}).encode()
    draft = folder / "draft"
    draft.write_bytes(len(header).to_bytes(8, "little") + header)
    draft.rename(folder / f"{version}.safetensors")
    if over or (sys.argv[1] == "short" and version == 5):
        break
    time.sleep(0.05)
print(json.dumps({"ledger": {"finished": 12}, "samples": 34, "learner_step": 5, "weight_version": version}), flush=True)
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    importlib.import_module("azq.nets.weights")  # torch, for which the first look would else wait while the fake goes on
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("time_to_strength")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture
def trained(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Runs a recipe with the fake and with grades of 1 / version."""
    started: list[subprocess.Popen[bytes]] = []
    real_end = script.end

    def grade(folder: Path, weights: Path, _recipe: object, _exam: object, begun: float) -> dict[str, object]:
        version = script.weight_version(weights)
        seconds = weights.stat().st_mtime - begun
        return {"seconds": seconds, "version": version, "error_share": 1 / version, "low": 0.0, "high": 1.0, "wrong": [], "positions": 1}

    def end(up: subprocess.Popen[bytes], *rest: object) -> Any:
        started.append(up)
        return real_end(up, *rest)

    monkeypatch.setattr(script, "grade_weights", grade)
    monkeypatch.setattr(script, "LOOK_S", 0.02)
    monkeypatch.setattr(script, "end", end)

    def run(kind: str, interrupts: object, keep: Callable[[dict[str, Any]], None] = lambda figures: None, target: float = 0.1) -> Any:
        monkeypatch.setattr(script, "up_command", lambda _recipe: [sys.executable, "-c", FAKE_UP, kind])
        exam = script.Exam(positions=(), num_simulations=1, target=target, every_s=0.05)
        return script.run_recipe(script.Recipe(), tmp_path / kind, exam, interrupts, keep)

    yield run
    assert started
    assert all(process.poll() is not None for process in started), "something was left running"


def quiet(count: int = 0) -> SimpleNamespace:
    return SimpleNamespace(count=count, pause=threading.Event().wait)


def test_a_run_stops_at_the_target(trained):
    result = trained("long", quiet())
    assert result["rows"][-1]["error_share"] <= 0.1 < result["rows"][-2]["error_share"]
    assert result["reached_s"] == result["rows"][-1]["seconds"] > 0
    assert (result["games"], result["samples"], result["steps"], result["evaluations"]) == (12, 34, 5, 75)
    assert result["exit_code"] == 0
    assert result["cpu_s"]["all"] >= 0


def test_a_run_that_ends_before_the_target_says_so(trained):
    result = trained("short", quiet())
    assert result["reached_s"] is None
    assert result["rows"][-1]["version"] == 5


def test_an_interrupt_ends_the_run_and_keeps_what_there_is(trained):
    interrupts = quiet()
    result = trained("long", interrupts, keep=lambda figures: setattr(interrupts, "count", 1), target=0.0)
    assert result["interrupted"]
    assert result["games"] == 12


def test_what_does_not_stop_is_killed(script, trained, monkeypatch):
    monkeypatch.setattr(script, "DRAIN_S", 0.3)
    result = trained("deaf", quiet(), target=0.2)
    assert result["exit_code"] == -signal.SIGKILL
    assert result["reached_s"] is not None


def test_the_first_version_at_the_target_counts(script):
    rows = [{"seconds": s, "error_share": e} for s, e in ((10, 0.2), (20, 0.04), (30, 0.05), (40, 0.03))]
    assert script.reached(rows, 0.04) == 20
    assert script.reached(rows, 0.01) is None


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ([sys.executable, "-m", "azq", "learner", "--run", "strength"], "learner"),
        ([sys.executable, "-m", "azq", "worker", "--queues", "selfplay.cpu"], "selfplay"),
        ([sys.executable, "-m", "azq", "worker", "--queues", "eval.cpu"], "eval"),
        ([sys.executable, "-m", "azq", "inference"], "inference"),
        (["/opt/valkey-server unixsocket:/home/x/control.sock"], "broker"),
        (["sleep", "1"], "other"),
        ([], "other"),
    ],
)
def test_processes_are_told_apart_by_their_command(script, words, role):
    assert script.role_of(words) == role


def test_the_cpu_of_children_is_counted_under_their_roles(script):
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn, "learner"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        cost = script.Cost()
        cost.read(os.getpid())
        child.kill()
    assert 0.2 <= cost.by_role()["learner"] < 5.0
    before = cost.by_role()["learner"]
    cost.read(os.getpid())
    assert cost.by_role()["learner"] == before  # it is gone, and what it took is not forgotten


def test_the_recipe_of_the_repository_fits_its_preset():
    (recipe,) = (SCRIPTS / "recipes").glob("*.toml")
    load(recipe, (), preset(recipe.stem))


def test_the_curve_is_drawn(script, tmp_path):
    row = {"low": 0.0, "high": 1.0, "regret": {"search": 0.1, "policy": 0.5, "value_error": 0.3}}
    script.draw([{**row, "seconds": 60.0 * i, "error_share": (9 - i) / 10} for i in (1, 2)], tmp_path / "out.png", 0.04, "a title")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_time_is_counted_from_the_start_of_azq_up(trained):
    begun = time.time()
    result = trained("short", quiet())
    assert 0 < result["rows"][0]["seconds"] < time.time() - begun
