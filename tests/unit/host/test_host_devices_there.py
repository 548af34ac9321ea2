"""What a machine has: GPUs that a process of their own looks at, and those that are gone since an earlier start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from azq.errors import DeviceError
from azq.host.devices import Machine, detect, remember, vanished
from azq.process import cards
from azq.process.cards import Gpu, LateGpu, drivers, survey

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
