"""The daemon without its REST interface: what looks, decides and acts, over one connection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import redis

from azq import queue as jobs
from azq.arena import positions
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.ledger import Ledger
from azq.status.brokers import fleet_of
from azq.status.heartbeats import Beats
from azq.status.observe import Observer
from azq.wire.connect import translate
from daemon.serve.act import Hands
from daemon.serve.health import Health
from daemon.serve.lock import DaemonLock
from daemon.serve.loop import Loop


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that others work with too."""

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
        config.daemon,
        Observer(ledger, bus, beats),
        Hands(ledger, bus, publish, config.daemon.max_attempts),
        bus,
        hold=lock.hold,
        clock_ms=partial(_broker_ms, client),
        has_positions=positions.available,
        health=health,
        life_s=config.worker.heartbeat_life_s,
        fleet=fleet_of(config),
    )
    return Core(client, ledger, bus, beats, health, loop)


def _broker_ms(client: redis.Redis) -> int:
    """The broker's clock, which all leases are measured by."""
    with translate(client):
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000
