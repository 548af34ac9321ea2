"""A machine at work: who is stopped before whom, and where brokers listen whose address others join."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.errors import ConfigError, StateConflict
from azq.host.fronts import Listen
from azq.host.join.member import holding, last_lines, worker_of
from azq.host.join.work import in_order, listen_of, state_of
from azq.process.supervisor import Child, ChildSpec


def test_who_plays_stops_first_and_the_way_to_the_brokers_last() -> None:
    names = ["front-control", "daemon", "learner@ttt", "inference@cpu", "worker@eval.cpu", "worker@selfplay.cpu", "front-data"]
    assert list(in_order(names, ["front-control", "front-data"])) == [
        ("worker@selfplay.cpu",),
        ("learner@ttt",),
        ("daemon", "inference@cpu", "worker@eval.cpu"),
        ("front-control", "front-data"),
    ]


def test_a_process_that_was_given_up_says_why(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\nevent reason='no such game'\n")
    child = Child(ChildSpec("x", [], tmp_path / "log"))
    assert state_of(child) == "is started again"
    child.given_up = 2
    assert state_of(child) == "given up: no such game"


def test_one_process_has_a_folder_and_says_who_it_is(tmp_path: Path) -> None:
    import os

    folder = tmp_path / "a" / "b"
    assert worker_of(folder) == 0
    with holding(folder):
        assert worker_of(folder) == os.getpid()
        with pytest.raises(StateConflict, match=f"process {os.getpid()} works in"), holding(folder):
            pass
    assert worker_of(folder) == 0
    assert last_lines(folder / "none") == ""


def test_brokers_listen_where_their_address_says() -> None:
    assert listen_of("rediss://10.0.0.1:7000/0") == Listen("10.0.0.1", 7000)
    assert listen_of("redis://first/0") == Listen("first", 6379, plaintext=True)


@pytest.mark.parametrize("url", ["rediss://:pw@first:6379/0", "unix:///run/a.sock", "first:6379"])
def test_what_nobody_can_listen_at_is_named_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="own address") as caught:
        listen_of(url)
    assert ":pw" not in str(caught.value)
