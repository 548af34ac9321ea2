"""Embedded brokers while others work with them: those that hang or died are started again, machines whose time is over sent away."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from azq import logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.errors import BrokerError
from azq.host.brokers import Brokers
from azq.process.supervisor import Death, Supervisor
from azq.status.conditions import FEWEST, KEPT, Died, crash_loops, publish_death
from azq.waiting import AwakeClock
from azq.wire.machines import ProcessDeath

RETRY_S = 5.0
EXPIRE_S = 5.0  # between two looks after machines whose time is over
BROKER_HANG_AFTER_S = 8.0  # shorter than that of children, for all others have to find their way back after it

log = logs.get(__name__)


class DeathReporter:
    """Reports deaths among the children of this process to the control plane, and crash loops to the log."""

    def __init__(self) -> None:
        self._recent: deque[Died] = deque(maxlen=KEPT)
        self._unsent: deque[ProcessDeath] = deque(maxlen=KEPT)
        self._due_s = 0.0

    def add(self, deaths: Iterable[Death], at_ms: int) -> None:
        """Queues them; a process that keeps dying is also logged, once."""
        for death in deaths:
            log_file = str(death.spec.log.absolute()) if death.spec.log else ""
            report = ProcessDeath(death.spec.name, socket.gethostname(), death.pid, death.spec.run, death.cause, log_file)
            self._unsent.append(report)
            self._recent.append(Died(at_ms, report))
            for loop in crash_loops(self._recent, at_ms):
                if loop.name == report.name and loop.times == FEWEST:
                    log.error("crash_loop", name=loop.name, reason=str(loop))

    def send(self, bus: Bus, now_s: float) -> None:
        """Sends what is queued; a control plane that is away is tried again after `RETRY_S`."""
        if not self._unsent or now_s < self._due_s:
            return
        try:
            while self._unsent:
                publish_death(bus, self._unsent[0])
                self._unsent.popleft()
        except BrokerError:  # said elsewhere
            self._due_s = now_s + RETRY_S


@dataclass
class BrokerSupervisor:
    """Looks after the brokers of this machine."""

    brokers: Brokers
    expire_s: float = 0.0  # when machines whose time is over are looked for again
    awake_s: AwakeClock = field(default_factory=AwakeClock)
    deaths: DeathReporter = field(default_factory=lambda: DeathReporter())

    def revive(self, supervisor: Supervisor) -> dict[str, int]:
        """Ends brokers that hang, and has what died start again: children after their delay, brokers at once; as `Supervisor.check`."""
        for role in self.brokers.end_hung(BROKER_HANG_AFTER_S, self.awake_s()):
            log.error("broker_hung", role=role, silent_s=BROKER_HANG_AFTER_S)
        for death in (ended := self.brokers.revive()):
            log.warning("broker_died", role=death.spec.name.removeprefix("broker-"), cause=death.cause, log=str(death.spec.log))
        failed = supervisor.check(excused=self.silent())
        self.deaths.add([*ended, *supervisor.take_deaths()], now_ms())
        if not self.silent():
            self.deaths.send(RedisBus(self.brokers.control), self.awake_s())
        return failed

    def silent(self) -> bool:
        """Whether a broker answers nothing just now."""
        return self.brokers.silent(self.awake_s())

    def send_away(self, now_s: float) -> None:
        """Machines that joined and whose time is over lose their users."""
        if now_s >= self.expire_s:
            self.expire_s = now_s + EXPIRE_S
            with contextlib.suppress(BrokerError):  # `revive` reports brokers that are away
                for name in self.brokers.expire(now_ms()):
                    log.info("machine_expired", name=name, remedy="azq join-token lets it in again")
