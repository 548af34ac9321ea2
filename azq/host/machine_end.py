"""A machine's end: its dead-man timer runs out, its provider takes it back or its fleet is over; its services stop and it is switched off.

Times are seconds of the clock that runs since the machine's start, which no network sets.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from azq import logs
from azq.bus.redis import RedisBus
from azq.config import BudgetConfig, Config, MachineConfig
from azq.errors import AzqError, ConfigError, ExitCode, StateConflict, reason_of
from azq.files import publish_file
from azq.host.systemd.steps import RunCommand, carry_out
from azq.process.breaker import CircuitBreaker
from azq.process.heartbeat import Presence
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify
from azq.status.spending import HOST
from azq.waiting import meanwhile
from azq.wire import keys
from azq.wire.codec import decode, skip_unreadable
from azq.wire.connect import connect
from azq.wire.messages import Fleet

BEGAN, HEARD, ASKED = "began", "heard", "end"
UNITS = ("azq-machine.service", "azq-deadman.timer")


@dataclass(frozen=True, slots=True)
class End:
    """Why a machine's azq drains and ends, and whether the machine goes off after it."""

    reason: str
    off: bool = True  # where it has a command for that


def boot_s() -> float:
    """Seconds since this machine's start, sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # on macOS the latter counts sleep, too


def overdue(machine: MachineConfig, now_s: float, began_s: float, heard_s: float | None) -> str:
    """Why this machine has to end, whatever others say; empty where it may go on. `heard_s`: when a daemon was heard of last. Pure."""
    if machine.hours is not None and now_s - began_s >= machine.hours * 3600 + machine.margin_s:
        return f"its {machine.hours:g} hours are over (machine.hours)"
    silent_s = now_s - max(began_s, began_s if heard_s is None else min(heard_s, now_s))
    if machine.lost_after_s and silent_s >= machine.lost_after_s:
        return f"no daemon was heard of for {silent_s:.0f} s (machine.lost_after_s)"
    return ""


def ending_units(machine: MachineConfig, budget: BudgetConfig) -> tuple[str, ...]:
    """The units that are enabled on a machine that something is to end: none where nothing of its settings does. Pure."""
    own = machine.hours is not None or machine.lost_after_s or machine.poweroff_command or machine.metadata_url
    fleets = budget.hours is not None or budget.money is not None or budget.with_runs
    return UNITS if own or fleets else ()


class Notes:
    """What a machine's own processes leave for each other in a folder that its next start finds empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def note(self, name: str, at_s: float) -> None:
        publish_file(self.folder / name, f"{at_s:.3f}\n".encode())

    def noted(self, name: str) -> float | None:
        """When that was; None where there is none that can be read."""
        with contextlib.suppress(OSError, ValueError):
            return float((self.folder / name).read_text("utf-8"))
        return None

    def due_end(self, machine: MachineConfig, now_s: float) -> End | None:
        """The end that the timer finds due; its first call begins to count."""
        began_s = self.noted(BEGAN)
        if began_s is None or began_s > now_s:
            self.note(BEGAN, now_s)
            began_s = now_s
        reason = overdue(machine, now_s, began_s, self.noted(HEARD))
        return End(reason) if reason else None

    def ask(self, end: End) -> None:
        """Requests the end of this machine from the unit that may stop services."""
        publish_file(self.folder / ASKED, json.dumps(asdict(end)).encode())

    def take_end(self) -> End:
        """Takes what was asked for. Raises `StateConflict` where nothing was."""
        path = self.folder / ASKED
        try:
            end = End(**json.loads(path.read_bytes()))
            path.unlink()
        except (OSError, ValueError, TypeError) as error:
            raise StateConflict(f"no request to end this machine: {path}: {error}") from None
        return end


TOKEN, ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"
TOKEN_LIFE, TOKEN_HEADER = "X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token"
TOKEN_LIFE_S = 21_600
TIMEOUT_S = 1.0
LONGEST = 4096  # bytes of an answer

log = logs.get(__name__)


class SpotNotice:
    """Asks at one address, never through a proxy. An address that does not answer is said once, and asked again."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"machine.metadata_url {url!r} is no http address; that of AWS is http://169.254.169.254")
        self._url = url.rstrip("/")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._token = ""
        self._away = False

    def ask(self) -> str:
        """What is announced, as `spot interruption: terminate at 2026-01-13T12:00:00Z`; empty where nothing is."""
        try:
            return self._parsed(self._fetch())
        except urllib.error.HTTPError as error:
            error.close()
            self._token = ""  # it may have run out
            self._missed("" if error.code == 404 else f"status {error.code}")
        except (OSError, ValueError) as error:
            self._missed(reason_of(error))
        return ""

    def _fetch(self) -> bytes:
        if not self._token:
            self._token = self._answer("PUT", TOKEN, {TOKEN_LIFE: str(TOKEN_LIFE_S)}).decode("ascii")
        return self._answer("GET", ACTION, {TOKEN_HEADER: self._token})

    def _answer(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self._url + path, headers=headers, method=method)
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read(LONGEST))

    @staticmethod
    def _parsed(body: bytes) -> str:
        notice = json.loads(body)
        is_notice = isinstance(notice, dict) and {"action", "time"} <= notice.keys()
        return f"spot interruption: {notice['action']} at {notice['time']}" if is_notice else ""

    def _missed(self, why: str) -> None:
        if why and not self._away:
            log.warning("metadata_away", url=self._url, reason=why, remedy="set machine.metadata_url, or leave it empty")
        self._away = bool(why)


TICK_S = 0.25
NOTICE_EVERY_S = 2.0  # between two questions to the provider
BROKER_TIMEOUT_S = 2.0
LINGER_S = 60.0  # of a machine that others need while they end: the daemon's, and those with brokers


class MachineWatch:
    """Watches for this machine's end; calls `on_end` first, then informs the control plane.

    `notes`: where the dead-man timer of another process reads that a daemon was heard of; without them this one looks itself.
    """

    def __init__(
        self,
        config: Config,
        on_end: Callable[[End], None],
        notes: Notes | None = None,
        *,
        beats: bool = False,
        clock: Callable[[], float] = boot_s,
    ) -> None:
        self._config = config
        self._machine = config.machine
        self._on_end = on_end
        self._notes = notes
        self._beats = beats  # also while it has nothing to say
        self._clock = clock
        self._notice = SpotNotice(config.machine.metadata_url) if config.machine.metadata_url else None
        self._presence = Presence(HOST, life_s=config.worker.heartbeat_life_s, every_s=config.worker.heartbeat_s, **config.machine.facts())
        self._outage = CircuitBreaker(AzqError)
        self._bus: RedisBus | None = None
        self._fleet: Fleet | None = None
        self._over_s: float | None = None  # since when
        self._began_s = self._heard_s = clock()
        self._asked_s = -NOTICE_EVERY_S
        self._announced = ""
        self.end: End | None = None

    def poll(self) -> None:
        """Polls provider and control plane, no more often than each allows."""
        now_s = self._clock()
        if self._notice is not None and now_s - self._asked_s >= NOTICE_EVERY_S:
            self._asked_s = now_s
            self._announced = self._notice.ask()
            self._update(now_s)
        if self._presence.due():
            self._outage.attempt(self._speak)
        self._update(now_s)

    def leave(self) -> None:
        """Takes its heartbeat away."""
        bus = self._bus
        if bus is not None:
            self._outage.attempt(lambda: self._presence.leave(bus))

    def _update(self, now_s: float) -> None:
        """Tells an end that is new; one that is announced no more is none any more."""
        before, self.end = self.end, self._reason(now_s)
        if self.end is not None and before is None:
            log.warning("machine_ends", reason=self.end.reason)
            self._on_end(self.end)
            self._outage.attempt(self._speak)

    def _reason(self, now_s: float) -> End | None:
        if self._announced:
            return End(self._announced, off=False)  # who takes it back ends it, too
        over = self._fleet.over if self._fleet else ""
        self._over_s = None if not over else now_s if self._over_s is None else self._over_s
        if self._over_s is not None and now_s - self._over_s >= (LINGER_S if self._is_needed() else 0.0):
            return End(f"the fleet is over: {over}")
        reason = overdue(self._machine, now_s, self._began_s, self._heard_s) if self._notes is None else ""
        return End(reason) if reason else None

    def _is_needed(self) -> bool:
        has_broker = self._config.broker.control_url.startswith("unix://")
        return has_broker or (self._fleet is not None and self._fleet.host == socket.gethostname())

    def _speak(self) -> None:
        """Says whether this machine is leaving, and hears what the daemon says. Raises `AzqError`."""
        if self._bus is None:
            self._bus = RedisBus(connect(self._config.broker.control_url, timeout_s=BROKER_TIMEOUT_S))
        if self._beats or self.end is not None:
            reason = self.end.reason if self.end else ""
            self._presence.beat(self._bus, leaving=reason, note=f"leaving: {reason}" if reason else "")
        with skip_unreadable(keys.FLEET):
            if frame := self._bus.get(keys.FLEET):
                self._fleet, self._heard_s = decode(frame, Fleet), self._clock()
                if self._notes is not None:
                    self._notes.note(HEARD, self._heard_s)


@contextlib.contextmanager
def watching(config: Config) -> Iterator[MachineWatch]:
    """Watches beside what this process does; `end` is there once the machine is to end."""
    watch = MachineWatch(config, lambda _: None)

    def poll(ended: threading.Event) -> None:
        while not ended.wait(TICK_S):
            watch.poll()
        watch.leave()

    with meanwhile("machine-watch", poll):
        yield watch


def switch_off(end: End | None, command: tuple[str, ...]) -> None:
    """Runs the machine's own command, where it has one and this end asks for it: nothing of azq works any more by now."""
    if end is None or not (end.off and command):
        return
    log.warning("machine_goes_off", reason=end.reason, command=" ".join(command))
    try:
        subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        log.error("machine_stays_on", reason=reason_of(error), remedy="mend machine.poweroff_command; switch it off by hand")


#: what is stopped first, and what only once that has given its work back; `systemctl stop` waits only for units that it names
STOP_ORDER = (
    ("azq-worker@*.service", "azq-gateway.service"),
    ("azq-learner@*.service",),
    ("azq.target", "azq-inference@*.service", "azq-daemon.service"),
    ("azq-front@*.service", "azq-broker@*.service"),
)


def watch(config: Config, folder: Path) -> int:
    """Watches until SIGTERM; returns an exit code."""
    notes = Notes(folder)
    machine = MachineWatch(config, notes.ask, notes, beats=True)
    with Interrupts() as stop:
        notify(READY, "STATUS=watching")
        while not stop.wait(TICK_S):
            machine.poll()
            notify(WATCHDOG, f"STATUS=ending: {machine.end.reason}" if machine.end else "STATUS=watching")
        notify(STOPPING)
        machine.leave()
    return int(ExitCode.OK)


def end(config: Config, folder: Path) -> End:
    """Stops the services, whatever fails on the way, then switches the machine off. Raises `StateConflict` without a request."""
    requested = Notes(folder).take_end()
    for units in STOP_ORDER:
        try:
            log.info("stopping", units=" ".join(units), reason=requested.reason)
            carry_out(RunCommand(("systemctl", "stop", *units)))
        except AzqError as error:
            log.error("not_stopped", units=" ".join(units), reason=str(error))
    switch_off(requested, config.machine.poweroff_command)
    return requested
