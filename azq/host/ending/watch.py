"""Looks whether this machine is to end: its provider takes it back, its fleet is over, or its dead-man timer has run out."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator

from azq import logs
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.errors import AzqError, reason_of
from azq.host.ending.deadman import HEARD, End, Notes, boot_s, overdue
from azq.host.ending.notice import SpotNotice
from azq.process.breaker import CircuitBreaker
from azq.process.heartbeat import Presence
from azq.status.spending import HOST
from azq.waiting import meanwhile
from azq.wire import keys
from azq.wire.codec import decode, skip_unreadable
from azq.wire.connect import connect
from azq.wire.messages import Fleet

TICK_S = 0.25
BROKER_TIMEOUT_S = 2.0
LINGER_S = 60.0  # of a machine that others need while they end: the daemon's, and those with brokers

log = logs.get(__name__)


class MachineWatch:
    """One machine's end; `tell` hears of it as soon as it is known, and then the control plane does.

    `notes`: where the dead-man timer of another process reads that a daemon was heard of; without them this one looks itself.
    """

    def __init__(
        self,
        config: Config,
        tell: Callable[[End], None],
        notes: Notes | None = None,
        *,
        beats: bool = False,
        clock: Callable[[], float] = boot_s,
    ) -> None:
        self._config = config
        self._machine = config.machine
        self._tell = tell
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
        self._asked_s = -self._machine.notice_every_s
        self._announced = ""
        self.end: End | None = None

    def look(self) -> None:
        """One look, as often as one likes."""
        now_s = self._clock()
        if self._notice is not None and now_s - self._asked_s >= self._machine.notice_every_s:
            self._asked_s = now_s
            self._announced = self._notice.ask()
            self._settle(now_s)
        if self._presence.due():
            self._outage.attempt(self._speak)
        self._settle(now_s)

    def leave(self) -> None:
        """Takes its heartbeat away."""
        bus = self._bus
        if bus is not None:
            self._outage.attempt(lambda: self._presence.leave(bus))

    def _settle(self, now_s: float) -> None:
        """Tells an end that is new; one that is announced no more is none any more."""
        before, self.end = self.end, self._reason(now_s)
        if self.end is not None and before is None:
            log.warning("machine_ends", reason=self.end.reason)
            self._tell(self.end)
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

    def look(ended: threading.Event) -> None:
        while not ended.wait(TICK_S):
            watch.look()
        watch.leave()

    with meanwhile("machine-watch", look):
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
