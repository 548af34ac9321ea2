"""What a machine does for its cluster when it is asked: start, tell, stop, run a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from azq.errors import ConfigError, StateConflict
from azq.host.join import member
from azq.host.join.member import MemberOrder, answer, worker_of
from azq.process.proc import alive

# Stands in for `azq join`: takes the folder, reads the token, says how it is, works until it is asked to stop.
JOIN = """
import json, os, pathlib, signal, sys, threading
from azq.host.join.member import WORKING, holding
from azq.files import publish_file
folder = pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
if "--fail" in sys.argv:
    sys.exit("azq: no brokers there")
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
with holding(folder):
    (folder / "azq.env").write_text(sys.stdin.readline())
    print(os.environ["AZQ_HOME"], os.environ.get("AZQ_LEFT_OVER"), flush=True)
    publish_file(folder / WORKING, json.dumps({"pid": os.getpid(), "services": {"daemon": "works"}}).encode())
    stop.wait()
threading.Event().wait(0.5)  # a process takes its time to go once it has let go of its folder
"""


@pytest.fixture(autouse=True)
def _joins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(member, "AZQ", (sys.executable, "-c", JOIN))
    monkeypatch.setenv("AZQ_LEFT_OVER", "x")
    with patch.dict(os.environ):  # an order's settings are its process's from then on
        yield


def test_work_is_started_told_of_and_stopped_and_its_password_goes(tmp_path: Path) -> None:
    folder = tmp_path / "it"
    order = MemberOrder("start", str(folder), {}, ["url"], token="machine-x.secret.")
    order.settings = {"AZQ_HOME": "/somewhere"}
    try:
        told = answer(order)
        assert (told.works, told.services, told.digest) == (True, {"daemon": "works"}, order.digest())
        assert told.output == "/somewhere None"
        assert (folder / "azq.env").read_text() == "machine-x.secret.\n"
        assert folder.stat().st_mode & 0o777 == 0o700
        with pytest.raises(StateConflict, match="works in"):
            answer(order)
    finally:
        pid = worker_of(folder)
        told = answer(MemberOrder("stop", str(folder), within_s=10.0))
    assert not alive(pid)
    assert (told.works, told.services, told.digest) == (False, {}, "")
    assert worker_of(folder) == 0
    assert not (folder / "azq.env").exists()


def test_work_that_does_not_begin_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exit code 1: azq: no brokers there"):
        answer(MemberOrder("start", str(tmp_path / "it"), {"AZQ_HOME": "/x"}, ["--fail"]))
    assert not answer(MemberOrder("stop", str(tmp_path / "it"))).works


def test_a_machine_where_nothing_was_started_says_so(tmp_path: Path) -> None:
    told = answer(MemberOrder("look", str(tmp_path / "none")))
    assert (told.works, told.output, told.beats) == (False, "", None)


def test_a_folder_in_the_users_home_is_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        told = answer(MemberOrder("start", "~/azq/it", {"AZQ_HOME": "~/azq/runs"}, ["url"], token="t"))
        assert told.output == f"{tmp_path}/azq/runs None"
        assert worker_of(tmp_path / "azq" / "it")
    finally:
        answer(MemberOrder("stop", "~/azq/it", within_s=10.0))
    assert not worker_of(tmp_path / "azq" / "it")


def test_what_is_asked_is_known_by_all_but_its_token() -> None:
    one = MemberOrder("start", "/a", {"AZQ_HOME": "/x"}, ["url"], token="secret")
    assert one.digest() == MemberOrder("look", "/b", {"AZQ_HOME": "/x"}, ["url"]).digest()
    assert one.digest() != MemberOrder("start", "/a", {"AZQ_HOME": "/y"}, ["url"]).digest()
