"""The daemon's tick: look, decide, act, say so. Errors end a tick, never the loop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import msgspec

import azq
from azq import logs
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import DaemonConfig
from azq.errors import BrokerError, StateConflict
from azq.process.liveness import WATCHDOG, notify
from azq.process.proc import usage
from azq.status.history import Recorder
from azq.status.observe import Observer
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import SCHEMA, Fleet, Heartbeat
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
        self._started_ms = now_ms()
        self._name = f"daemon@{socket.gethostname()}:{os.getpid()}"

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
        self._bus.delete(keys.beat(self._name))

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
        beat = Heartbeat(
            role="daemon",
            worker=self._name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=azq.__version__,
            schema=SCHEMA,
            started_ms=self._started_ms,
            sent_ms=now_ms(),
            rates=usage(),
        )
        self._bus.put(keys.beat(self._name), encode(beat), life_s=self._life_s)
        if self._fleet is not None:
            self._bus.put(keys.FLEET, encode(msgspec.structs.replace(self._fleet, sent_ms=beat.sent_ms)), life_s=self._life_s)

    def _failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
        if reason != self._health.pulse.error:  # one line an outage, not one a tick
            log.error("tick_failed", reason=reason)
            notify(f"STATUS=degraded: {reason}")
        self._health.tick_failed(reason)
