"""Looks at the heartbeats of a running fleet, or of a whole `azq up` that it starts for the purpose and takes away again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from azq import logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.console.profile.table import Look, RoleProfile, concerns, profile_of
from azq.errors import AzqError, EvaluationTimeout, NotFound
from azq.host import brokers
from azq.phases import OF_ROLE, WINDOW_S
from azq.status.observe import read_workers

EVERY_S = 1.0
RUN = "profile"
READY_S = 120.0
STOP_S = 60.0
#: what lets a run train within seconds, and nothing but self-play and training work
SOON = ("learner.min_window=4096", "learner.publish_every_s=5.0", "arena.every_s=86400.0")


def profile_run(config: Config, run: str, seconds: float, wait: Callable[[float], object] | None = None) -> tuple[RoleProfile, ...]:
    """Where the time of a running fleet goes, over `seconds`. Raises `NotFound` where no process of the run says."""
    bus = RedisBus(brokers.open_control(config)[1])
    with contextlib.closing(bus):
        found = profile_of(looks(bus, seconds, wait or threading.Event().wait), run)
    if not found:
        raise NotFound(f"no live process works for run {run!r}; `azq status` lists the runs, `azq up --run {run}` starts one")
    return found


def profile_local(game: str, seconds: float, overrides: list[str]) -> tuple[RoleProfile, ...]:
    """The same of an `azq up` in a folder of its own, once each of its roles works. Raises `EvaluationTimeout` where one does not."""
    with tempfile.TemporaryDirectory(prefix="azq-profile-") as folder, _up(Path(folder), game, overrides) as config:
        bus = RedisBus(brokers.open_control(config)[1])
        with contextlib.closing(bus):
            return profile_of(looks(bus, seconds, threading.Event().wait), RUN)


def looks(bus: Bus, seconds: float, wait: Callable[[float], object]) -> list[Look]:
    """All heartbeats, each second: as many looks as seconds, one at least."""
    found: list[Look] = [read_workers(bus)]
    for _ in range(round(seconds / EVERY_S) - 1):
        wait(EVERY_S)
        found.append(read_workers(bus))
    return found


@contextlib.contextmanager
def _up(folder: Path, game: str, overrides: list[str]) -> Iterator[Config]:
    """A run of its own that trains; the block begins once its figures are those of a run at work."""
    config = Config(home=folder)
    sets = [word for setting in (f"home={str(folder)!r}", *SOON, *overrides) for word in ("--set", setting)]
    command = [sys.executable, "-m", "azq", "up", "--game", game, "--run", RUN, *sets]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AZQ_BROKER")}
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
        try:
            _await_work(config, process, folder / "up.log")
            yield config
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_work(config: Config, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until every role works and one window of figures has passed."""
    pause, end_s = threading.Event().wait, time.monotonic() + READY_S
    while not _at_work(config):
        if process.poll() is not None or time.monotonic() > end_s:
            text = (log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise EvaluationTimeout(f"`azq up` for the profile does not work after {READY_S:.0f} s: {text}")
        pause(EVERY_S)
    logs.get(__name__).info("profile_begins", after_s=WINDOW_S)
    pause(WINDOW_S)


def _at_work(config: Config) -> bool:
    try:
        bus = RedisBus(brokers.open_control(config)[1])
    except AzqError:
        return False  # not up yet
    with contextlib.closing(bus):
        roles = {beat.role: beat.rates for beat in read_workers(bus) if concerns(beat, RUN)}
    return set(roles) == set(OF_ROLE) and roles["learner"].get("phase_wall_backward", 0.0) > 0
