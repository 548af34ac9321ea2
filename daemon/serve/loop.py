"""The daemon without its REST interface. Its tick looks, decides, acts and says so; errors end a tick, never the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import redis

from azq import logs
from azq import queue as jobs
from azq.arena import positions
from azq.bus.base import Bus
from azq.bus.connect import translate
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, DaemonConfig
from azq.errors import BrokerError, StateConflict
from azq.ledger import Ledger
from azq.process.heartbeat import Presence
from azq.process.liveness import WATCHDOG, notify
from azq.status.brokers import fleet_of
from azq.status.heartbeats import Beats
from azq.status.history import Recorder
from azq.status.observe import Observer
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import Fleet
from daemon.decide.actions import ReportUnroutable
from daemon.decide.reconcile import reconcile
from daemon.serve.act import Hands, act
from daemon.serve.health import Health
from daemon.serve.lock import DaemonLock

log = logs.get(__name__)


@dataclass(kw_only=True)
class Loop:
    """Everything that one tick needs, and what it remembers for the next."""

    config: DaemonConfig
    observer: Observer
    hands: Hands
    bus: Bus
    hold: Callable[[], None]
    clock_ms: Callable[[], int]
    has_positions: Callable[[str], bool]
    health: Health
    life_s: float
    fleet: Fleet | None = None

    def __post_init__(self) -> None:
        self._history = Recorder(self.bus, self.config.history_every_s)
        self._presence = Presence("daemon", life_s=self.life_s)

    def tick(self) -> bool:
        """One tick; True when it went through. Raises `StateConflict` when another daemon took the control plane."""
        try:
            unroutable = self._look_and_act()
        except StateConflict:
            raise
        except Exception as error:
            self._failed(error)
            return False
        if self.health.pulse.error:
            log.info("recovered", failed_ticks=self.health.pulse.failed_ticks)
            notify("STATUS=reconciling")
        for report in self.health.tick_ok(unroutable):
            log.warning("unroutable", reason=str(report))
        notify(WATCHDOG)
        return True

    def leave(self) -> None:
        """Takes the heartbeat back."""
        self._presence.leave(self.bus)

    def _look_and_act(self) -> list[ReportUnroutable]:
        self.hold()
        now_ms = self.clock_ms()
        desired, observed = self.observer.look(now_ms)
        actions = reconcile(desired, observed, now_ms, self.config, self.has_positions)
        act(actions, self.hands, now_ms)
        self._beat()
        self._history.note(desired, observed, now_ms)
        return [action for action in actions if isinstance(action, ReportUnroutable)]

    def _beat(self) -> None:
        self._presence.beat(self.bus)
        if self.fleet is not None:
            self.bus.put(keys.FLEET, encode(msgspec.structs.replace(self.fleet, sent_ms=now_ms())), life_s=self.life_s)

    def _failed(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, BrokerError) else f"{type(error).__name__}: {error}"
        if reason != self.health.pulse.error:  # one line an outage, not one a tick
            log.error("tick_failed", reason=reason)
            notify(f"STATUS=degraded: {reason}")
        self.health.tick_failed(reason)


@dataclass(frozen=True, slots=True)
class Core:
    """A daemon without its REST interface, over one connection: the parts that others work with too."""

    client: redis.Redis
    ledger: Ledger
    bus: RedisBus
    beats: Beats
    health: Health
    loop: Loop


def build(config: Config, client: redis.Redis, lock: DaemonLock) -> Core:
    """What ticks, over one connection."""
    bus, ledger, health = RedisBus(client), Ledger(client), Health()
    beats = Beats(bus, max_age_s=2 * config.daemon.tick_s)
    publish = partial(jobs.publish, jobs.make_app(config.broker.control_url))
    loop = Loop(
        config=config.daemon,
        observer=Observer(ledger, bus, beats),
        hands=Hands(ledger, bus, publish, config.daemon.max_attempts),
        bus=bus,
        hold=lock.hold,
        clock_ms=partial(broker_ms, client),
        has_positions=positions.available,
        health=health,
        life_s=config.worker.heartbeat_life_s,
        fleet=fleet_of(config),
    )
    return Core(client, ledger, bus, beats, health, loop)


def broker_ms(client: redis.Redis) -> int:
    """The broker's clock, which all leases are measured by."""
    with translate(client):
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
