"""Zeros at the end of an append-only file, as a power cut leaves them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from azq.bus import append_only
from azq.bus.append_only import appended_file, cut_zeros, zeros_at_end
from azq.errors import BrokerUnavailable

MANIFEST = """file appendonly.aof.3.base.rdb seq 3 type b
file appendonly.aof.9.incr.aof seq 9 type i
file appendonly.aof.10.incr.aof seq 10 type i startoffset 3
file appendonly.aof.2.incr.aof seq 2 type h
"""
WHOLE = b"*1\r\n$4\r\nPING\r\n"


@pytest.fixture
def appended(tmp_path: Path) -> Path:
    """The file that a server of today appended to last, whole."""
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.manifest").write_text(MANIFEST)
    for name in ("appendonly.aof.3.base.rdb", "appendonly.aof.9.incr.aof", "appendonly.aof.10.incr.aof"):
        (folder / name).write_bytes(WHOLE)
    return folder / "appendonly.aof.10.incr.aof"


def test_the_file_that_was_appended_to_last_is_found(tmp_path: Path, appended: Path) -> None:
    assert appended_file(tmp_path) == appended
    appended.unlink()
    assert appended_file(tmp_path) is None
    other = tmp_path / "other"
    other.mkdir()
    assert appended_file(other) is None
    (other / "appendonly.aof").touch()  # of Redis 6
    assert appended_file(other) == other / "appendonly.aof"


@pytest.mark.parametrize("zeros", [0, 1, 7, 8, 9, 40])
@pytest.mark.parametrize("before", [b"", b"x", WHOLE, b"\0" * 9 + b"x"])
def test_zeros_are_counted_over_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes, zeros: int) -> None:
    monkeypatch.setattr(append_only, "CHUNK_BYTES", 8)
    path = tmp_path / "file"
    path.write_bytes(before + bytes(zeros))
    assert zeros_at_end(path) == zeros


def test_zeros_are_cut_once_and_a_copy_is_kept(tmp_path: Path, appended: Path) -> None:
    damaged = WHOLE + bytes(4096)
    appended.write_bytes(damaged)
    cut_zeros(tmp_path)
    assert appended.read_bytes() == WHOLE
    (kept,) = tmp_path.glob("*before-cut")
    assert kept.read_bytes() == damaged
    kept.unlink()
    cut_zeros(tmp_path)
    assert not list(tmp_path.glob("*before-cut"))


def test_a_unit_has_it_done_before_its_server_starts(tmp_path: Path, appended: Path) -> None:
    appended.write_bytes(WHOLE + bytes(9))
    unit = (Path(__file__).parents[3] / "systemd" / "azq-broker@.service").read_text("utf-8")
    (command,) = (line.split() for line in unit.splitlines() if "azq.bus.append_only" in line)
    assert command[1:-1] == ["-P", "-m", "azq.bus.append_only"]
    subprocess.run([sys.executable, *command[1:-1], str(tmp_path)], check=True)
    assert appended.read_bytes() == WHOLE


def test_nothing_is_cut_where_no_copy_can_be_kept(tmp_path: Path, appended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    appended.write_bytes(WHOLE + bytes(9))
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(BrokerUnavailable, match=r"9 zeros.*No space left"):
        cut_zeros(tmp_path)
    assert appended.read_bytes() == WHOLE + bytes(9)
