"""What a machine has: GPUs that a process of their own looks at, and those that are gone since an earlier start."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from azq.host.hardware import Machine, detect, remember, vanished
from azq.process import cards
from azq.process.cards import Cards, Gpu, drivers, survey

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


def test_a_host_without_gpus_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "SURVEY", ("false",))
    assert survey(tmp_path) == Cards()
    assert detect().cores > 0


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            'import json; print("noise"); print(json.dumps({"gpus": [{"device": "cuda:0", "name": "H200"}]}))',
            Cards((Gpu("cuda:0", "H200"),)),
        ),
        ('print(\'{"trouble": "driver too old; update it"}\')', Cards(trouble="driver too old; update it")),
    ],
)
def test_what_the_survey_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: Cards) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(cards, "SURVEY", (*cards.SURVEY[:1], "-c", script))
    assert survey(tmp_path) == found


@pytest.mark.parametrize(("script", "said"), [("import os; os.abort()", "crashed"), ("pass", "crashed"), ("print(1)", "crashed")])
def test_a_survey_that_dies_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(cards, "SURVEY", (*cards.SURVEY[:1], "-c", script))
    assert said in survey(tmp_path).trouble


def test_a_driver_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("survey", 60.0)

    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not answer within 60 s" in survey(tmp_path).trouble


def test_a_gpu_that_is_gone_is_named_until_its_note_is_deleted(tmp_path: Path) -> None:
    assert vanished(tmp_path, MACHINE) == ""
    remember(tmp_path, replace(MACHINE, gpus=()))
    assert not list(tmp_path.iterdir())
    remember(tmp_path, MACHINE)
    assert vanished(tmp_path, MACHINE) == ""
    less = replace(MACHINE, gpus=MACHINE.gpus[:1])
    remember(tmp_path, less)
    note = tmp_path / ".gpus.json"
    assert vanished(tmp_path, less) == f"gone: cuda:1 (H200); look at `nvidia-smi` and `dmesg`, or delete {note} where that is meant"
    note.write_text("broken")
    assert vanished(tmp_path, less) == ""
