"""`ops/bench/time_to_strength.py`: its figures as pure functions, and how it looks after the `azq up` that it starts."""

from __future__ import annotations

import importlib
import json
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
def scripts() -> SimpleNamespace:
    importlib.import_module("azq.nets.weights")  # torch, for which the first look would else wait while the fake goes on
    sys.path.insert(0, str(SCRIPTS))
    try:
        return SimpleNamespace(arm=importlib.import_module("strength_arm"), top=importlib.import_module("time_to_strength"))
    finally:
        sys.path.remove(str(SCRIPTS))


def exam(scripts: SimpleNamespace, *, target: float = 0.1, to_the_end: bool = False) -> object:
    return scripts.arm.Exam(positions=(), num_simulations=1, target=target, every_s=0.05, points=3, to_the_end=to_the_end)


@pytest.fixture
def arm_run(scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Runs an arm with the fake and with grades of 1 / version."""
    arm: ModuleType = scripts.arm
    started: list[subprocess.Popen[bytes]] = []

    def grade(folder: Path, weights: Path, _arm: object, _exam: object, begun: float) -> dict[str, object]:
        version = arm.weight_version(weights)
        seconds = weights.stat().st_mtime - begun
        return {"seconds": seconds, "version": version, "error_share": 1 / version, "low": 0.0, "high": 1.0, "wrong": [], "positions": 1}

    real_end = arm.end

    def end(up: subprocess.Popen[bytes], *rest: object) -> Any:
        started.append(up)
        return real_end(up, *rest)

    monkeypatch.setattr(arm, "grade_weights", grade)
    monkeypatch.setattr(arm, "LOOK_S", 0.02)
    monkeypatch.setattr(arm, "end", end)

    def run(kind: str, interrupts: object, say: Callable[[str], None] = lambda text: None, **options: Any) -> Any:
        monkeypatch.setattr(arm, "up_command", lambda _arm: [sys.executable, "-c", FAKE_UP, kind])
        return arm.run_arm(arm.Arm("fake"), tmp_path / kind, exam(scripts, **options), interrupts, say)

    yield run
    assert started
    assert all(process.poll() is not None for process in started), "something was left running"


def quiet(count: int = 0) -> SimpleNamespace:
    return SimpleNamespace(count=count, pause=threading.Event().wait)


def test_a_run_stops_at_the_target(arm_run):
    result = arm_run("long", quiet())
    assert result["rows"][-1]["error_share"] <= 0.1 < result["rows"][-2]["error_share"]
    assert result["reached_s"] == result["rows"][-1]["seconds"] > 0
    assert (result["games"], result["samples"], result["steps"], result["evaluations"]) == (12, 34, 5, 75)
    assert result["exit_code"] == 0
    assert result["cpu_s"]["all"] >= 0


def test_a_run_that_ends_before_the_target_says_so(arm_run):
    result = arm_run("short", quiet())
    assert result["reached_s"] is None
    assert result["rows"][-1]["version"] == 5


def test_to_the_end_versions_are_graded_afterwards(arm_run):
    result = arm_run("short", quiet(), to_the_end=True, target=0.25)
    assert [row["version"] for row in result["rows"]] == [2, 4, 5]  # the first one, of no step, is left out
    assert result["reached_s"] == result["rows"][1]["seconds"]


def test_an_interrupt_ends_the_run_and_keeps_what_there_is(arm_run):
    interrupts = quiet()
    result = arm_run("long", interrupts, say=lambda text: setattr(interrupts, "count", 1), target=0.0)
    assert result["interrupted"]
    assert result["games"] == 12


def test_what_does_not_stop_is_killed(scripts, arm_run, monkeypatch):
    monkeypatch.setattr(scripts.arm, "DRAIN_S", 0.3)
    result = arm_run("deaf", quiet(), target=0.2)
    assert result["exit_code"] == -signal.SIGKILL
    assert result["reached_s"] is not None


def test_arms_are_compared_position_by_position(scripts):
    difference, half = scripts.top.paired([[1, 2, 3, 4, 5, 6]], [[1, 2, 7]], 100)
    assert difference == pytest.approx(-0.03)
    assert half == pytest.approx(1.959964 * (5 - 100 * 0.03**2) ** 0.5 / 100)  # McNemar's, where each has one version
    assert scripts.top.paired([[1, 2]], [[1, 2]], 100) == (0.0, 0.0)
    difference, half = scripts.top.paired([[1], [1, 2]], [[], [], [2]], 100)
    assert difference == pytest.approx((-1 - 1 / 2 + 1 / 3) / 100)
    assert half == pytest.approx(1.959964 * ((1 + (1 / 6) ** 2) / 100 - difference**2) ** 0.5 / 10)


def test_the_first_version_at_the_target_counts(scripts):
    rows = [{"seconds": s, "error_share": e} for s, e in ((10, 0.2), (20, 0.04), (30, 0.05), (40, 0.03))]
    assert scripts.arm.reached(rows, 0.04) == 20
    assert scripts.arm.reached(rows, 0.01) is None


@pytest.mark.parametrize(("count", "points", "expected"), [(0, 3, []), (2, 3, [0, 1]), (9, 3, [0, 4, 8]), (100, 2, [0, 99]), (5, 1, [4])])
def test_versions_are_spread_evenly(scripts, count, points, expected):
    assert scripts.arm.spread(count, points) == expected


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
def test_processes_are_told_apart_by_their_command(scripts, words, role):
    assert scripts.arm.role_of(words) == role


def test_the_cpu_of_children_is_counted_under_their_roles(scripts):
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", burn, "learner"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        cost = scripts.arm.Cost()
        cost.read(os.getpid())
        child.kill()
    assert 0.2 <= cost.by_role()["learner"] < 5.0
    before = cost.by_role()["learner"]
    cost.read(os.getpid())
    assert cost.by_role()["learner"] == before  # it is gone, and what it took is not forgotten


def test_every_arm_of_the_files_is_a_sound_recipe(scripts):
    files = sorted((SCRIPTS / "arms").glob("*.toml"))
    assert files
    for file in files:
        _, arms = scripts.top.read_arms(file)
        assert len({arm.name for arm in arms}) == len(arms)
        for arm in arms:
            load(Path(arm.config) if arm.config else None, arm.overrides, preset(arm.game, arm.preset))


def test_an_arm_that_is_not_there_is_named(scripts, tmp_path):
    file = tmp_path / "arms.toml"
    file.write_text('set = ["run.seed=3"]\n[[arm]]\nname = "one"\nset = ["run.seed=4"]\n')
    _, (arm,) = scripts.top.read_arms(file, ["one"])
    assert arm.overrides == ("run.seed=3", "run.seed=4")
    with pytest.raises(SystemExit, match="two"):
        scripts.top.read_arms(file, ["two"])


def test_figures_are_written_and_drawn(scripts, tmp_path):
    row = {"positions": 10, "low": 0.0, "high": 1.0, "regret": {"search": 0.1, "policy": 0.5, "value_error": 0.3}}
    rows = [{**row, "seconds": 60.0 * i, "version": i, "errors": 9 - i, "error_share": (9 - i) / 10} for i in (1, 2)]
    counts = {"reached_s": None, "games": 1, "samples": 2, "evaluations": 3, "cpu_s": {"all": 4.0}}
    results = [{"arm": name, **counts, "rows": [{**one, "wrong": [0, n]} for one in rows]} for n, name in enumerate(("off", "on"), 1)]
    scripts.top.write(results, exam(scripts), tmp_path / "out.json", "a title")
    assert [arm["arm"] for arm in json.loads((tmp_path / "out.json").read_text())["arms"]] == ["off", "on"]
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    last = scripts.top.table(results, 0.04).splitlines()[-1]
    assert last.startswith("| on | - | 70.0% (0.0% to 100.0%) | 75.0% | +0.0 +-27.7 points | 0.100, 0.500, 0.300 |")


def test_time_is_counted_from_the_start_of_azq_up(arm_run):
    begun = time.time()
    result = arm_run("short", quiet())
    assert 0 < result["rows"][0]["seconds"] < time.time() - begun
