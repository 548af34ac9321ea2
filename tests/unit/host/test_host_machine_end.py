"""What ends a machine: its hours, silence, its provider, its fleet; with a fake clock, a fake command and a provider on loopback."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus
from typer.testing import CliRunner

from azq.cli.fleet import machine_app
from azq.config import Config, MachineConfig
from azq.errors import ConfigError, StateConflict
from azq.host import machine_end
from azq.host.machine_end import (
    ACTION,
    BEGAN,
    HEARD,
    TOKEN,
    TOKEN_HEADER,
    TOKEN_LIFE,
    End,
    MachineWatch,
    Notes,
    SpotNotice,
    overdue,
    switch_off,
)
from azq.process.heartbeat import Presence
from azq.status.brokers import fleet_of
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import Heartbeat

HOURS = MachineConfig(hours=2.0, margin_s=60.0)
LOST = MachineConfig(lost_after_s=300.0)


def test_without_settings_a_machine_is_never_overdue() -> None:
    assert overdue(MachineConfig(), 1e9, 0.0, None) == ""


def test_hours_are_over_after_their_margin_whoever_was_heard() -> None:
    assert overdue(HOURS, 100 + 7259, 100, 100 + 7259) == ""
    assert overdue(HOURS, 100 + 7260, 100, 100 + 7260) == "its 2 hours are over (machine.hours)"


def test_silence_counts_from_the_last_word_or_the_beginning() -> None:
    assert overdue(LOST, 399, 100, None) == ""
    assert "no daemon was heard of for 300 s" in overdue(LOST, 400, 100, None)
    assert overdue(LOST, 400, 100, 250) == ""
    assert overdue(LOST, 551, 100, 250)
    assert overdue(LOST, 551, 100, 9999) == ""  # a note from the future is none from long ago


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e5))
def test_a_machine_that_is_overdue_stays_so(began_s: float, heard_s: float, now_s: float, more_s: float) -> None:
    machine = MachineConfig(hours=1.0, lost_after_s=600.0)
    if overdue(machine, now_s, began_s, heard_s):
        assert overdue(machine, now_s + more_s, began_s, heard_s)


def test_the_timers_first_look_begins_to_count_and_its_notes_are_all_it_needs(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    assert notes.due_end(HOURS, 1000.0) is None
    assert notes.due_end(HOURS, 1000.0 + 7260) == End("its 2 hours are over (machine.hours)")
    notes.note(HEARD, 1100.0)
    assert notes.due_end(LOST, 1300.0) is None
    assert notes.due_end(LOST, 1500.0) is not None
    (tmp_path / HEARD).write_text("?")
    assert notes.due_end(LOST, 1299.0) is None
    assert notes.due_end(HOURS, 5.0) is None  # another start of the machine, whose clock begins anew
    assert notes.noted(BEGAN) == 5.0


def test_what_was_asked_for_is_taken_once(tmp_path: Path) -> None:
    notes = Notes(tmp_path)
    notes.ask(End("so", off=False))
    assert notes.take_end() == End("so", off=False)
    with pytest.raises(StateConflict, match="no request to end"):
        notes.take_end()


def test_a_provider_announces_nothing_then_an_end_also_after_its_token_ran_out() -> None:
    with metadata() as provider:
        notice = SpotNotice(provider.url)
        assert notice.ask() == ""
        provider.renew()
        assert notice.ask() == ""  # refused; the next question brings a new token
        provider.announce()
        assert notice.ask() == "spot interruption: terminate at 2026-01-13T12:00:00Z"


@pytest.mark.parametrize("body", ["[]", "{}", "no json"])
def test_a_provider_that_says_something_else_announces_nothing(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with metadata() as provider:
        notice = SpotNotice(provider.url)
        monkeypatch.setattr(notice, "_fetch", lambda: body.encode())
        assert notice.ask() == ""


def test_a_provider_that_is_not_there_announces_nothing_and_a_wrong_address_is_an_error() -> None:
    with Metadata() as closed:
        url = closed.url
    assert SpotNotice(url).ask() == ""
    with pytest.raises(ConfigError, match=r"machine\.metadata_url"):
        SpotNotice("file:///etc/passwd")


class Machine:
    """A watched machine with a settable clock and a control plane in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, notes: Notes | None = None, beats: bool = False, **settings: Any) -> None:
        self.bus, self.now_s = MemoryBus(), 1000.0
        self.told: list[End] = []
        monkeypatch.setattr(machine_end, "connect", lambda url, timeout_s: None)
        monkeypatch.setattr(machine_end, "RedisBus", lambda client: self.bus)
        monkeypatch.setattr(Presence, "due", lambda presence: True)
        self.config = Config(machine=MachineConfig(**settings))
        self.watch = MachineWatch(self.config, self.told.append, notes, beats=beats, clock=lambda: self.now_s)

    def fleet(self, over: str = "", host: str = "elsewhere") -> None:
        fleet = fleet_of(self.config)
        self.bus.put(
            keys.FLEET,
            encode(type(fleet)(**{name: getattr(fleet, name) for name in fleet.__struct_fields__} | {"over": over, "host": host})),
        )

    def look(self, later_s: float = 1.0) -> End | None:
        self.now_s += later_s
        self.watch.poll()
        return self.watch.end

    def beat(self) -> Heartbeat | None:
        frames = list(self.bus.values(keys.BEAT_PREFIX).values())
        return decode(frames[0], Heartbeat) if frames else None


def test_a_notice_is_told_at_once_marked_as_leaving_and_switches_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with metadata() as provider:
        machine = Machine(monkeypatch, metadata_url=provider.url)
        assert machine.look() is None
        assert machine.beat() is None
        provider.announce()
        assert machine.look(1.0) is None  # it asks every two seconds
        end = machine.look(1.0)
        assert end is not None
        assert (end.off, machine.told) == (False, [end])
        beat = machine.beat()
        assert beat is not None
        assert (beat.role, beat.leaving) == ("host", end.reason)
        machine.look(2.0)
        assert machine.told == [end]
        machine.watch.leave()
        assert machine.beat() is None


def test_a_fleet_that_is_over_ends_its_machines_and_last_the_one_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.fleet()
    assert machine.look() is None
    machine.fleet(over="budget spent: 5 USD")
    assert machine.look() == End("the fleet is over: budget spent: 5 USD")
    last = Machine(monkeypatch)
    last.fleet(over="so", host=socket.gethostname())
    assert last.look() is None
    assert last.look(59.0) is None
    assert last.look(2.0) is not None


def test_alone_it_is_its_own_dead_mans_timer_and_beside_one_it_notes_whom_it_heard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone = Machine(monkeypatch, lost_after_s=60.0)
    alone.fleet()
    alone.look(50.0)
    assert alone.look(50.0) is None
    alone.bus.delete(keys.FLEET)
    assert alone.look(59.0) is None
    assert alone.look(2.0) is not None
    beside = Machine(monkeypatch, Notes(tmp_path), beats=True, lost_after_s=60.0, per_hour=0.5, kind="box")
    beside.fleet()
    assert beside.look(100.0) is None
    assert Notes(tmp_path).noted(HEARD) == beside.now_s
    beat = beside.beat()
    assert beat is not None
    assert (beat.per_hour, beat.machine_kind, beat.leaving) == (0.5, "box", "")


def test_only_an_end_that_asks_for_it_switches_off_and_a_command_that_fails_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = (sys.executable, "-c", f"open({str(tmp_path / 'off')!r}, 'w')")
    switch_off(None, command)
    switch_off(End("spot", off=False), command)
    switch_off(End("over"), ())
    assert not (tmp_path / "off").exists()
    switch_off(End("over"), command)
    assert (tmp_path / "off").exists()
    switch_off(End("over"), ("/nowhere/poweroff",))


def test_services_stop_in_order_and_the_machine_goes_off_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[str, ...]] = []

    def carry_out(step: Any) -> str:
        stopped.append(step.command)
        if "learner" in step.command[2]:
            raise ConfigError("it hangs")
        return ""

    monkeypatch.setattr(machine_end, "carry_out", carry_out)
    Notes(tmp_path).ask(End("its 2 hours are over"))
    config = Config(machine=MachineConfig(poweroff_command=(sys.executable, "-c", f"open({str(tmp_path / 'off')!r}, 'w')")))
    assert machine_end.end(config, tmp_path).reason == "its 2 hours are over"
    assert [command[2] for command in stopped] == ["azq-worker@*.service", "azq-learner@*.service", "azq.target", "azq-front@*.service"]
    assert stopped[3][2:] == ("azq-front@*.service", "azq-broker@*.service")  # named, or nothing waits for them
    assert (tmp_path / "off").exists()


def test_the_timers_command_asks_for_the_end(tmp_path: Path) -> None:
    settings = tmp_path / "azq.toml"
    settings.write_text("[machine]\nlost_after_s = 1.0\n")
    (tmp_path / BEGAN).write_text("0.0\n")
    said = CliRunner().invoke(machine_app, ["deadman", "--config", str(settings), "--folder", str(tmp_path), "--json"])
    assert "no daemon was heard of" in json.loads(said.output)["end"]
    assert "no daemon was heard of" in Notes(tmp_path).take_end().reason


class Metadata(ThreadingHTTPServer):
    """Answers as AWS's version 2 does: a token for a PUT, and what is announced for a GET with that token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.token = secrets.token_hex(8)
        self.announced: dict[str, str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def announce(self, action: str = "terminate", time: str = "2026-01-13T12:00:00Z") -> None:
        self.announced = {"action": action, "time": time}

    def renew(self) -> None:
        """Earlier tokens count no more."""
        self.token = secrets.token_hex(8)


class _Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        known = self.path == TOKEN and self.headers.get(TOKEN_LIFE, "").isdigit()
        self._answer(200 if known else 400, self.server.token if known else "")

    def do_GET(self) -> None:
        if self.headers.get(TOKEN_HEADER) != self.server.token:
            self._answer(401)
        elif self.path != ACTION or self.server.announced is None:
            self._answer(404)
        else:
            self._answer(200, json.dumps(self.server.announced))

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def metadata() -> Iterator[Metadata]:
    """Serves for the length of a block."""
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="metadata", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
