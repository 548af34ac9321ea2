"""Which server may go on with the files of another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.bus.origin import NOTE, ServerProgram, note_writer, parse_header, parse_server, unreadable, writer_of

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
def test_newer_ones_of_a_kind_read_and_valkey_reads_redis_up_to_the_fork(reader: tuple, writer: tuple, can: bool) -> None:
    assert ServerProgram(*reader).reads(ServerProgram(*writer)) is can


@given(SERVERS, SERVERS, SERVERS)
def test_reading_is_passed_on_and_never_goes_down(one: ServerProgram, two: ServerProgram, three: ServerProgram) -> None:
    assert one.reads(one)
    if one.reads(two) and two.reads(three):
        assert one.reads(three)
    if one.kind == two.kind and one.reads(two) and two.reads(one):
        assert one.version[:2] == two.version[:2]


@pytest.mark.parametrize(
    ("head", "server"),
    [
        (b"VALKEY080\xfa", ServerProgram("valkey", (9, 0))),
        (b"REDIS0009\xfa", ServerProgram("redis", (6, 2))),
        (b"REDIS0010\xfa", ServerProgram("redis", (7, 0))),
        (b"REDIS0011\xfa", ServerProgram("redis", (7, 2))),
        (b"REDIS0012\xfa", ServerProgram("redis", (7, 4))),
        (b"REDIS0099\xfa", ServerProgram("redis", (7, 4))),
        (b"*2\r\n$6\r\nSE", None),
        (b"", None),
    ],
)
def test_a_file_tells_the_oldest_server_that_writes_such(head: bytes, server: ServerProgram | None) -> None:
    assert parse_header(head) == server


@given(SERVERS)
def test_a_note_is_read_back(tmp_path_factory: pytest.TempPathFactory, server: ServerProgram) -> None:
    folder = tmp_path_factory.mktemp("broker")
    note_writer(folder, server)
    assert writer_of(folder) == server


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "redis"}', '{"kind": "x", "version": [1]}', '{"kind": "redis", "version": []}'])
def test_a_note_that_says_nothing_leaves_it_to_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    assert writer_of(tmp_path) is None
    (tmp_path / "appendonly.aof").write_bytes(b"REDIS0009\xfa")
    assert writer_of(tmp_path) == ServerProgram("redis", (6, 2))
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(b"VALKEY080\xfa")
    assert writer_of(tmp_path) == ServerProgram("valkey", (9, 0))


def test_advice_that_would_destroy_a_file_is_known() -> None:
    folder, log = Path("/home/me/.broker/control"), Path("/home/me/.broker/control/server.log")
    said = unreadable("Bad file format reading the append only file: ... use ./redis-check-aof --fix <filename>", folder, log)
    assert str(log) in said
    assert "--fix" not in said
    assert unreadable("Could not create server TCP listening socket: Address already in use", folder, log) == ""
