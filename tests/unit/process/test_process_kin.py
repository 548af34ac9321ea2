"""Whom a drill may hurt: what descends from its own `azq up`, and is still the process that was chosen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import redis
from waiting import PATIENCE_S

import azq
from azq.errors import NotFound, StateConflict
from azq.process.kin import Kin, NoVictim, Victim, borne
from azq.waiting import until

SLEEPS = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '{SLEEPS}']).pid, flush=True); {SLEEPS}"


def earlier(victim: Victim) -> Victim:
    """A process that had the number before it."""
    process = psutil.Process(victim.pid)
    process._ident = (victim.pid, 1.0)
    return replace(victim, process=process)


@pytest.fixture
def root() -> Iterator[tuple[Kin, Victim]]:
    """A process that stands for `azq up`, and one below it."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        kin = Kin.of(process.pid)
        try:
            yield kin, kin.victim(pid, "learner")
        finally:
            process.kill()
            os.kill(pid, signal.SIGKILL)  # its parent is gone, and its number is its own until somebody waits for it


@pytest.fixture
def live() -> Iterator[int]:
    """A process that works beside the drill."""
    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


def test_a_process_below_is_stopped_and_goes_on_when_that_is_lifted(root: tuple[Kin, Victim]) -> None:
    kin, victim = root
    lift = kin.signalled(signal.SIGSTOP, victim)
    until(lambda: victim.process.status() == "stopped", "it did not stop", PATIENCE_S)
    lift()
    until(lambda: victim.process.status() in ("running", "sleeping"), "it did not go on", PATIENCE_S)
    assert [found.pid for found in kin.below(kin.root)] == [victim.pid]


@pytest.mark.parametrize("way", ["victim", "check", "send", "signalled", "killed_if"])
def test_a_process_beside_the_drill_is_refused_by_name(root: tuple[Kin, Victim], live: int, way: str) -> None:
    kin, _ = root
    other = Victim(psutil.Process(live), "broker-control")
    ways = {
        "victim": lambda: kin.victim(live, "broker-control"),
        "check": lambda: kin.check(other),
        "send": lambda: kin.send(signal.SIGKILL, other),
        "signalled": lambda: kin.signalled(signal.SIGKILL, other),
        "killed_if": lambda: kin.killed_if(other, lambda: True),
    }
    with pytest.raises(
        NoVictim, match=f"pid {live}, taken for broker-control, does not descend from this drill's azq up.*nothing was sent"
    ):
        ways[way]()
    assert other.process.status() not in ("stopped", "zombie")


def test_a_number_that_is_another_processes_by_now_is_refused(root: tuple[Kin, Victim]) -> None:
    kin, victim = root
    with pytest.raises(NoVictim, match=f"pid {victim.pid}, taken for learner, is another process by now"):
        kin.send(signal.SIGKILL, earlier(victim))
    with pytest.raises(NoVictim, match="is another process by now"):
        kin.signalled(signal.SIGKILL, victim, earlier(victim))  # neither is struck where one is refused
    assert victim.process.status() != "zombie"


def test_a_root_whose_number_is_another_processes_by_now_has_no_kin(root: tuple[Kin, Victim]) -> None:
    kin, victim = root
    with pytest.raises(NoVictim, match="does not descend"):
        Kin(earlier(kin.root)).check(victim)


def test_what_is_gone_is_let_go_on_without_complaint_and_cannot_be_struck() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPS]) as process:
        own = Kin.of(os.getpid())
        victim = own.victim(process.pid, "learner")
        lift = own.signalled(signal.SIGKILL, victim)
    lift()
    with pytest.raises(NotFound, match=f"pid {victim.pid}, taken for learner, is gone"):
        own.send(signal.SIGKILL, victim)


def test_drills_and_validation_send_signals_in_one_place() -> None:
    package = Path(azq.__file__).parent
    files = [file for folder in ("drill", "validate") for file in (package / "parts" / "lab" / folder).rglob("*.py")]
    senders = {file.name for file in files if re.search(r"os\.kill|killpg|send_signal\(signal\.SIG(KILL|STOP)", file.read_text("utf-8"))}
    assert not senders  # but by `Kin`


def test_azq_up_is_started_in_one_place() -> None:
    package = Path(azq.__file__).parent
    assert [file.name for file in package.rglob("*.py") if '*AZQ, "up"' in file.read_text("utf-8")] == ["apart.py"]


def test_what_a_hurt_system_raises_is_borne_but_not_that_a_victim_is_none() -> None:
    for error in (StateConflict("x"), redis.ConnectionError("x")):
        with borne():
            raise error
    with pytest.raises(NoVictim), borne():
        raise NoVictim("x")
