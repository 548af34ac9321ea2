"""What a machine has, and what becomes of it: GPUs that a process of their own looks at, those that are gone, the plan, and its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus

from azq.config import Config, RunConfig, load
from azq.console import session as sessions
from azq.errors import DeviceError
from azq.host.devices import DevicePlan, Machine, Wishes, described, detect, plan, remember, vanished
from azq.host.rundir import RunDir
from azq.process import cards
from azq.process.cards import Gpu, LateGpu, drivers, survey
from azq.process.start import AZQ
from azq.status.events import line_of
from azq.wire import keys
from azq.wire.kinds import BROWSER

GIB = 1 << 30
UP = Wishes("auto", (), "auto", threads=3)


def machine(gpus: int = 0, cores: int = 16, gib: int = 256, **changes: Any) -> Machine:
    cards = tuple(Gpu(f"cuda:{index}", "H200", 140 * GIB, 138 * GIB) for index in range(gpus))
    return Machine("box", cores, gib * GIB, **({"tags": ("cpu",), "gpus": cards} | changes))


def cuda(*numbers: int) -> tuple[str, ...]:
    return tuple(f"cuda:{number}" for number in numbers)


@pytest.mark.parametrize(
    ("gpus", "cores", "wishes", "training", "inference", "processes"),
    [
        (0, 2, Wishes("auto", (), "auto"), ("cpu",), ("cpu",), 1),
        (0, 16, Wishes("auto", (), "auto"), ("cpu",), ("cpu",), 8),
        (1, 16, UP, cuda(0), cuda(0), 4),
        (1, 2, UP, cuda(0), cuda(0), 1),
        (1, 64, UP, cuda(0), cuda(0), 4),
        (2, 32, UP, cuda(0), cuda(0, 1), 8),
        (3, 64, UP, cuda(0), cuda(0, 1, 2), 12),
        (8, 192, UP, cuda(0), cuda(*range(1, 8)), 28),
        (8, 192, Wishes("auto", (), "auto", ranks=2), cuda(0, 1), cuda(*range(2, 8)), 72),
        (2, 32, Wishes("auto", (), "auto", ranks=4, threads=3), cuda(0, 1), cuda(0, 1), 8),
        (8, 192, Wishes("auto", (), "auto", ranks=2, learner_devices=cuda(2, 0)), cuda(2, 0), (*cuda(1), *cuda(*range(3, 8))), 72),
        (2, 16, Wishes("cuda:1", (), "cuda:0", concurrency=2), cuda(0), cuda(1), 2),
        (2, 16, Wishes("auto", cuda(1, 0), "auto", threads=3), cuda(0), cuda(1, 0), 4),
        (1, 16, Wishes("auto", (), "cpu", threads=3), ("cpu",), cuda(0), 4),
        (2, 16, Wishes("", (), "auto", threads=4), cuda(0), (), 2),
        (0, 2, Wishes("", (), "auto"), ("cpu",), (), 1),
        (0, 2, Wishes(), (), (), 2),
        (0, 16, Wishes("cuda", (), "cuda:1", threads=3), ("cuda:1",), ("cuda",), 4),
        (0, 2, Wishes("auto", (), "auto", evaluator="auto"), ("cpu",), ("cpu",), 2),
        (0, 16, Wishes("auto", (), "auto", evaluator="local"), ("cpu",), ("cpu",), 12),
        (1, 16, replace(UP, evaluator="auto"), cuda(0), cuda(0), 4),
    ],
)
def test_the_plan_of_a_machine(gpus: int, cores: int, wishes: Wishes, training: Any, inference: Any, processes: int) -> None:
    found = plan(machine(gpus, cores), wishes)
    assert (found.training, found.inference, found.processes, found.threads) == (training, inference, processes, wishes.threads)


@given(
    st.integers(0, 16),
    st.integers(1, 512),
    st.integers(1, 4096),
    st.integers(1, 16),
    st.integers(1, 8),
    st.sampled_from(["auto", "cuda", ""]),
)
def test_something_plays_and_infers_on_every_machine(gpus: int, cores: int, gib: int, threads: int, ranks: int, learner: str) -> None:
    box = machine(gpus, cores, gib)
    found = plan(box, Wishes("auto", (), learner, ranks, threads))
    assert found.processes >= 1
    assert found.processes == 1 or found.processes * threads <= cores
    assert len(found.training) == (0 if not learner else min(ranks, max(1, gpus)))
    assert len(set(found.inference)) == len(found.inference) > 0
    assert set(found.inference) | set(found.training) >= {gpu.device for gpu in box.gpus}
    assert len(described(box, found)) >= 2 + gpus - (gpus > 0)


def test_memory_that_grows_with_use_bounds_no_processes() -> None:
    small = machine(1, 16, 2)
    assert (plan(small, UP).processes, plan(replace(small, memory_grows=True), UP).processes) == (1, 4)


def test_a_gpu_that_cannot_be_used_is_left_out_and_named() -> None:
    cards = (Gpu("cuda:0", trouble="busy; end it"), Gpu("cuda:1", "H200", 140 * GIB, GIB // 2), Gpu("cuda:2", "H200", 140 * GIB, 140 * GIB))
    found = plan(replace(machine(), gpus=cards), UP)
    assert (found.training, found.inference) == (cuda(2), cuda(2))
    assert found.left_out["cuda:0"] == "busy; end it"
    assert "0.5 GiB of its memory are free" in found.left_out["cuda:1"]


def test_without_a_driver_the_cpu_does_all_where_that_is_allowed() -> None:
    box = machine(trouble="no driver; install it")
    found = plan(box, UP)
    assert (found.training, found.inference, found.left_out) == (("cpu",), ("cpu",), {"GPU": "no driver; install it"})
    assert described(box, found)[0] == "GPU       no driver; install it"
    assert plan(box, Wishes("cuda", (), "cuda")).inference == ("cuda",)


def test_of_a_list_what_is_not_there_is_left_out() -> None:
    found = plan(machine(3), Wishes("auto", cuda(1, 2, 3), "auto"))
    assert (found.inference, found.left_out) == (cuda(1, 2), {"cuda:3": "asked for and not there"})
    assert plan(machine(0), Wishes("auto", cuda(1, 2), "auto")).inference == cuda(1, 2)


def test_memory_bounds_what_plays() -> None:
    found = plan(machine(cores=64, gib=4), Wishes(threads=1))
    assert (found.processes, found.why) == (4, "memory is 4 GiB")


def test_one_worker_chooses_by_itself_and_several_are_told() -> None:
    assert plan(machine(1), UP).inference_children() == {"inference": ["inference"]}
    assert plan(machine(1), UP).inference_children(named=True) == {"inference": ["inference", "--device", "cuda:0"]}
    assert plan(machine(tags=("cpu", "mps")), UP).inference_children() == {"inference": ["inference"]}
    assert plan(machine(2), UP).inference_children() == {
        "inference": ["inference", "--device", "cuda:0"],
        "inference.1": ["inference", "--device", "cuda:1"],
    }
    assert plan(machine(0), UP).inference_children() == {"inference": ["inference", "--device", "cpu"]}
    assert plan(machine(2), Wishes("", (), "auto")).inference_children() == {}


def test_who_evaluates_is_the_runs_word_then_the_hosts_and_else_that_of_network_and_device() -> None:
    def evaluator(gpus: int = 0, *asked: str) -> str:
        return plan(machine(gpus), Wishes.of(load(overrides=asked))).evaluator

    mlp = "network.kind=mlp"
    assert [evaluator(), evaluator(0, mlp), evaluator(1, mlp)] == ["stream", "local", "stream"]
    assert [evaluator(0, mlp, "worker.evaluator=stream"), evaluator(1, "worker.evaluator=local")] == ["stream", "local"]
    assert evaluator(0, mlp, "worker.evaluator=local", "selfplay.evaluator=uniform") == "uniform"
    assert "which evaluate for themselves" in str(plan(machine(), Wishes.of(load(overrides=[mlp]))))


def session_of(devices: DevicePlan, tmp_path: Path, bus: MemoryBus) -> Any:
    start: Any = SimpleNamespace(run=RunDir(tmp_path, "mine"), volunteers=True)
    supervisor: Any = SimpleNamespace(children={}, stopped=[], stop=lambda names, _wait: supervisor.stopped.append(names))
    others: Any = SimpleNamespace(bus=bus, pause=None, fronts=())
    return sessions.Session(start, Config(), devices, others, supervisor, others, others, others)


def test_azq_up_starts_and_stops_them_all(tmp_path: Path) -> None:
    bus = MemoryBus()
    session = session_of(plan(machine(2), UP), tmp_path, bus)
    supervisor = session.supervisor
    supervisor.children = {spec.name: spec for spec in session.specs()}
    assert list(supervisor.children) == ["daemon", "inference", "inference.1", "selfplay", "eval", "gateway", "learner"]
    assert supervisor.children["inference.1"].command[-3:] == ["inference", "--device", "cuda:1"]
    assert supervisor.children["selfplay"].command[-2:] == ["--concurrency", "4"]
    session.devices = plan(machine(2), replace(UP, evaluator="local"))
    commands = {spec.name: spec.command for spec in session.specs()}
    assert commands["selfplay"][-2:] == ["--set", "worker.evaluator=local"]
    assert "--set" not in commands["eval"]
    session.ledger = SimpleNamespace(run=lambda _name: SimpleNamespace(state=None), set_run_state=lambda *_: None)
    screen: Any = SimpleNamespace(note=lambda _text: None)
    session.drain(screen)
    assert supervisor.stopped == [("selfplay", "gateway"), ("learner",), ("eval", "inference", "inference.1", "daemon")]
    (noted,) = map(line_of, bus.after(keys.AUDIT, "0"))
    assert (noted.what, noted.about) == ("azq up was stopped", "mine")


def test_a_run_of_tabs_alone_has_no_worker_that_makes_games(tmp_path: Path) -> None:
    session = session_of(plan(machine(1), UP), tmp_path, MemoryBus())
    session.config = Config(run=RunConfig(tag=BROWSER))
    commands = {spec.name: spec.command[len(AZQ) :] for spec in session.specs()}
    assert "selfplay" not in commands
    assert commands["eval"] == ["worker", "--queues", "eval.cpu"]


@pytest.mark.parametrize(
    ("gpus", "failed", "goes_on"),
    [
        (3, {"inference.1": 2}, True),
        (3, {"inference": 2, "inference.2": 2}, True),
        (3, {"inference": 2, "inference.1": 2, "inference.2": 2}, False),
        (3, {"inference.1": 2, "learner": 2}, False),
        (1, {"inference": 2}, False),
    ],
)
def test_a_run_goes_on_as_long_as_one_inference_worker_does(tmp_path: Path, gpus: int, failed: dict[str, int], goes_on: bool) -> None:
    assert session_of(plan(machine(gpus), UP), tmp_path, MemoryBus())._goes_on_without(failed) is goes_on


HANG = "import time; time.sleep(60)"
MACHINE = Machine("box", 16, 64 << 30, ("cpu", "cuda"), (Gpu("cuda:0", "H200", uuid="a"), Gpu("cuda:1", "H200", uuid="b")))


@pytest.mark.parametrize(
    ("nodes", "tags"),
    [
        (("nvidia0", "nvidia1", "nvidiactl"), ("cuda",)),
        (("kfd",), ("rocm",)),
        (("nvidia0", "kfd"), ("cuda", "rocm")),
        (("nvidiactl",), ()),
    ],
)
def test_gpus_are_seen_without_touching_them(tmp_path: Path, nodes: tuple[str, ...], tags: tuple[str, ...]) -> None:
    for name in nodes:
        (tmp_path / name).touch()
    assert drivers(tmp_path) == tags


def test_a_process_that_took_the_cpu_starts_again_once_a_driver_shows_up(tmp_path: Path) -> None:
    late, named = LateGpu("auto", tmp_path), LateGpu("cpu", tmp_path)
    late.check("cpu")
    (tmp_path / "nvidia-uvm").touch()
    with pytest.raises(DeviceError, match=r"nvidia-uvm showed up .* starts again"):
        late.check("cpu")
    late.check("mps")
    named.check("cpu")
    LateGpu("auto", tmp_path).check("cpu")


def test_a_host_without_gpus_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "SURVEY", ("false",))
    assert survey(tmp_path) == ((), "")
    assert detect().cores > 0


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            'import json; print("noise"); print(json.dumps([[{"device": "cuda:0", "name": "H200"}], ""]))',
            ((Gpu("cuda:0", "H200"),), ""),
        ),
        ("print('[[], \"driver too old; update it\"]')", ((), "driver too old; update it")),
    ],
)
def test_what_the_survey_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: cards.Cards) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(cards, "SURVEY", (*cards.SURVEY[:1], "-c", script))
    assert survey(tmp_path) == found


@pytest.mark.parametrize(
    ("script", "said"),
    [("import os; os.abort()", "SIGABRT"), ("pass", "IndexError"), ("print(1)", "ValidationError"), (HANG, "timed out after 2")],
)
def test_a_survey_that_dies_or_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(cards, "SURVEY", (*cards.SURVEY[:1], "-c", script))
    monkeypatch.setattr(cards, "SURVEY_S", 2.0)
    found, trouble = survey(tmp_path)
    assert (found, trouble.count("\n")) == ((), 0)
    assert said in trouble


def test_a_gpu_that_is_gone_is_named_until_its_note_is_deleted(tmp_path: Path) -> None:
    assert vanished(tmp_path, MACHINE) == {}
    remember(tmp_path, replace(MACHINE, gpus=()))
    assert not list(tmp_path.iterdir())
    remember(tmp_path, MACHINE)
    assert vanished(tmp_path, MACHINE) == {}
    less = replace(MACHINE, gpus=MACHINE.gpus[:1])
    remember(tmp_path, less)
    note = tmp_path / ".gpus.json"
    assert vanished(tmp_path, less) == {"cuda:1 (H200)": f"gone; look at `nvidia-smi` and `dmesg`, or delete {note} where that is meant"}
    note.write_text("broken")
    assert vanished(tmp_path, less) == {}
