"""Embedded brokers while others work with them: those that hang or died are started again, machines whose time is over sent away."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from azq import logs
from azq.clock import now_ms
from azq.errors import BrokerError
from azq.host.brokers import Brokers
from azq.process.supervisor import Supervisor
from azq.waiting import AwakeClock

EXPIRE_S = 5.0  # between two looks after machines whose time is over
BROKER_HANG_AFTER_S = 8.0  # shorter than that of children, for all others have to find their way back after it

log = logs.get(__name__)


@dataclass
class BrokerKeeper:
    """Looks after the brokers of this machine."""

    brokers: Brokers
    expire_s: float = 0.0  # when machines whose time is over are looked for again
    awake_s: AwakeClock = field(default_factory=AwakeClock)

    def revive(self, supervisor: Supervisor) -> dict[str, int]:
        """Ends brokers that hang, and starts what died again: children after their delay, brokers at once; as `Supervisor.look`."""
        for role in self.brokers.end_hung(BROKER_HANG_AFTER_S, self.awake_s()):
            log.error("broker_hung", role=role, silent_s=BROKER_HANG_AFTER_S)
        for role in self.brokers.revive():
            log.warning("broker_died", role=role)
        return supervisor.look(excused=self.silent())

    def silent(self) -> bool:
        """Whether a broker answers nothing just now."""
        return self.brokers.silent(self.awake_s())

    def send_away(self, now_s: float) -> None:
        """Machines that joined and whose time is over lose their users."""
        if now_s >= self.expire_s:
            self.expire_s = now_s + EXPIRE_S
            with contextlib.suppress(BrokerError):  # brokers that are away are told of elsewhere
                for name in self.brokers.expire(now_ms()):
                    log.info("machine_expired", name=name, remedy="azq join-token lets it in again")
