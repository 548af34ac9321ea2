"""The operations daemon: binds, connects, takes the lock, serves and ticks until a signal."""

from __future__ import annotations

import contextlib
import gc
import queue
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import redis

from azq import games, logs
from azq import queue as jobs
from azq.arena import positions
from azq.bus.connect import connect, open_client, translate
from azq.bus.redis import RedisBus
from azq.config import Config
from azq.errors import AzqError, BrokerError, ConfigError, ExitCode
from azq.ledger import Ledger
from azq.ledger.types import RunView
from azq.sdnotify import READY, STOPPING, notify
from azq.store import Store, open_store
from azq.wire.gate import agree_on_schema
from daemon.act import Hands
from daemon.api.app import create_app
from daemon.api.auth import check_binding
from daemon.api.services import Services
from daemon.beats import Beats
from daemon.health import Health
from daemon.invitation import fleet_of
from daemon.lock import LIFE_S, DaemonLock
from daemon.loop import Loop
from daemon.observe import Observer
from daemon.planes import open_planes
from daemon.server import Server, bind, check_tls, url_of

SWITCH_S = 0.001  # a large answer under way must not hold up the small ones
SWITCH_S = 0.001
PROBE_TIMEOUT_S = 1.0  # a scrape must not wait for a data plane that hangs

log = logs.get(__name__)


def main(config: Config) -> int:
    """Runs until SIGTERM or SIGINT; returns an exit code.

    Raises `ConfigError` (open binding without token, unusable TLS files, port taken, no broker set), `BrokerUnavailable`, `BrokerRefused`,
    `StateConflict` (another daemon serves this control plane).
    """
    check_binding(config.daemon)
    check_tls(config.daemon)
    if not config.broker.control_url:
        raise ConfigError("no broker: set broker.control_url (AZQ_BROKER__CONTROL_URL), or use `azq up`, which starts one")
    stops = _catch_signals()
    sys.setswitchinterval(SWITCH_S)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(bind(config.daemon))
        client = connect(config.broker.control_url, timeout_s=config.broker.connect_timeout_s)
        stack.callback(client.close)
        lock = DaemonLock(client, life_s=max(LIFE_S, 4 * config.daemon.tick_s))
        notify("STATUS=waiting for the lock of the control plane")
        lock.wait(partial(_stop_within, stops))
        stack.callback(_quietly, lock.let_go)
        agree_on_schema(client, upgrade=True)
        loop, services = build(config, client, lock)
        certificate, key = config.daemon.tls_certificate, config.daemon.tls_key
        server = Server(create_app(services), listener, certificate=certificate, key=key)
        server.start()
        stack.callback(server.stop)
        stack.callback(services.streams.close)
        log.info("listening", url=url_of(listener, tls=certificate is not None))
        settle()
        _serve(config, loop, server, stops)
        notify(STOPPING)
        _quietly(loop.leave)
    log.info("stopped")
    return int(ExitCode.OK)


def settle() -> None:
    """Makes this process answer quickly while it ticks.

    What was loaded so far goes out of the garbage collector's sight: to look through it all takes longer than a tick. And threads take
    turns sooner than every 5 ms, or the one that serves requests would wait so long each time that it has to be woken.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)


def build(config: Config, client: redis.Redis, lock: DaemonLock) -> tuple[Loop, Services]:
    """The loop and what the REST interface works with, over one connection."""
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
    data = open_client(config.broker.data_url or config.broker.control_url, timeout_s=PROBE_TIMEOUT_S)
    return loop, Services(
        ledger,
        bus,
        config.daemon,
        health,
        config.home,
        games.names,
        open_planes(client, data),
        store_of=partial(_store_of, config, client),
        beats=beats,
    )


def _store_of(config: Config, client: redis.Redis, view: RunView) -> Store:
    """Where the weights of a run are: its folder is looked for where the run says and, on another host, under `home`."""
    said = Path(view.record.directory)
    directory = said if view.record.directory and said.is_dir() else config.home / view.record.run
    return open_store(config.store.url, directory=directory / "weights", client=client)


def _serve(config: Config, loop: Loop, server: Server, stops: queue.SimpleQueue[int]) -> None:
    """Ticks until a signal; READY after the first tick that went through."""
    ready = False
    while True:
        if loop.tick() and not ready:
            ready = notify(READY, "STATUS=reconciling") or True
        if not server.alive:
            raise AzqError("the REST interface died; see the lines above")
        if _stop_within(stops, config.daemon.tick_s):
            return


def _catch_signals() -> queue.SimpleQueue[int]:
    """SIGTERM and SIGINT as data; a SimpleQueue may be put to inside a signal handler."""
    stops: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: stops.put(received))
    return stops


def _stop_within(stops: queue.SimpleQueue[int], seconds: float) -> bool:
    """True when a stop was asked for, now or within that time."""
    try:
        number = stops.get(timeout=seconds)
    except queue.Empty:
        return False
    log.info("stopping", signal=signal.Signals(number).name)
    return True


def _broker_ms(client: redis.Redis) -> int:
    """The broker's clock, which all leases are measured by."""
    with translate(client):
        seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _quietly(leave: Callable[[], None]) -> None:
    with contextlib.suppress(BrokerError):
        leave()
