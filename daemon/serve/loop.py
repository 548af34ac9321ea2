"""The daemon's tick: look, decide, act, say so. Errors end a tick, never the loop."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import DaemonConfig
from azq.errors import BrokerError, StateConflict
from azq.process.heartbeat import Presence
from azq.process.liveness import WATCHDOG, notify
from azq.status.history import Recorder
from azq.status.observe import Observer
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import Fleet
from daemon.decide.actions import ReportUnroutable
from daemon.decide.reconcile import reconcile
from daemon.serve.act import Hands, act
from daemon.serve.health import Health

log = logs.get(__name__)


class Loop:
    """Everything that one tick needs, and what it remembers for the next."""

    def __init__(
        self,
        config: DaemonConfig,
        observer: Observer,
        hands: Hands,
        bus: Bus,
        *,
        hold: Callable[[], None],
        clock_ms: Callable[[], int],
        has_positions: Callable[[str], bool],
        health: Health,
        life_s: float,
        fleet: Fleet | None = None,
    ) -> None:
        self._config = config
        self._observer = observer
        self._hands = hands
        self._bus = bus
        self._hold = hold
        self._clock_ms = clock_ms
        self._has_positions = has_positions
        self._health = health
        self._life_s = life_s
        self._fleet = fleet
        self._history = Recorder(bus, config.history_every_s)
        self._presence = Presence("daemon", life_s=life_s)

    def tick(self) -> bool:
        """One tick; True when it went through. Raises `StateConflict` when another daemon took the control plane."""
        try:
            unroutable = self._look_and_act()
        except StateConflict:
            raise
        except Exception as error:
            self._failed(error)
            return False
        if self._health.pulse.error:
            log.info("recovered", failed_ticks=self._health.pulse.failed_ticks)
            notify("STATUS=reconciling")
        for report in self._health.tick_ok(unroutable):
            log.warning("unroutable", reason=str(report))
        notify(WATCHDOG)
        return True

    def leave(self) -> None:
        """Takes the heartbeat back."""
        self._presence.leave(self._bus)

    def _look_and_act(self) -> list[ReportUnroutable]:
        self._hold()
        now_ms = self._clock_ms()
        desired, observed = self._observer.look(now_ms)
        actions = reconcile(desired, observed, now_ms, self._config, self._has_positions)
        act(actions, self._hands, now_ms)
        self._beat()
        self._history.note(desired, observed, now_ms)
        return [action for action in actions if isinstance(action, ReportUnroutable)]

    def _beat(self) -> None:
        self._presence.beat(self._bus)
        if self._fleet is not None:
            self._bus.put(keys.FLEET, encode(msgspec.structs.replace(self._fleet, sent_ms=now_ms())), life_s=self._life_s)

    def _failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
        if reason != self._health.pulse.error:  # one line an outage, not one a tick
            log.error("tick_failed", reason=reason)
            notify(f"STATUS=degraded: {reason}")
        self._health.tick_failed(reason)
