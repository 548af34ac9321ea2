"""The inference worker's process: connects, serves until a signal, beats from the serving loop, outlives broker outages."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

import redis

from azq import __version__, logs
from azq.bus.base import Bus
from azq.bus.connect import connect_at_start
from azq.bus.redis import RedisBus
from azq.bus.sharded import open_requests
from azq.clock import now_ms
from azq.config import Config, WorkerConfig, forget_environment
from azq.errors import AccessRefused, BrokerError, ConfigError, ExitCode
from azq.games import GameFiles
from azq.inference.device.placement import place
from azq.inference.serve.served import specs
from azq.inference.serve.server import InferenceServer
from azq.inference.weights import Fetch, fetch_from
from azq.ledger import Ledger
from azq.ledger.types import RunView
from azq.nets.process import prepare_process
from azq.process.sdnotify import READY, STOPPING, WATCHDOG, notify
from azq.process.usage import usage
from azq.store import open_store, weights_folder
from azq.wire import codec, keys
from azq.wire.gate import agree_on_schema
from azq.wire.messages import SCHEMA, Heartbeat

MAX_BACKOFF_S = 5.0

log = logs.get(__name__)


class Serving(Protocol):
    """What the loop asks of a server."""

    def step(self) -> int: ...
    def drain(self) -> None: ...
    def release(self) -> None: ...


def main(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code.

    Raises ConfigError (no broker set, no such device), BrokerUnavailable or BrokerRefused when the broker fails at the start.
    """
    control_url = config.broker.control_url
    if not control_url:
        raise ConfigError("no broker: set broker.control_url (AZQ_BROKER__CONTROL_URL), or use `azq up`, which starts one")
    forget_environment()  # games in Python run in this process
    client = connect_at_start(control_url, timeout_s=config.broker.connect_timeout_s)  # first: until then a signal simply ends the process
    stop = _catch_signals()
    placement = place(config.inference)
    prepare_process(placement.threads)
    agree_on_schema(client)
    control = RedisBus(client)
    data = open_requests(config.broker)
    try:
        worker = f"inference@{socket.gethostname()}:{os.getpid()}"
        store_of = _store_of(config, client)
        spec_of = specs(GameFiles(config.worker.game_files))
        server = InferenceServer(control, data, Ledger(client), store_of, config.inference, worker, spec_of=spec_of, placement=placement)
        pulse = Pulse(control, server, worker, config.worker)
        log.info("serving", worker=worker, device=str(placement.device), precision=placement.precision, threads=placement.threads)
        try:
            serve(server, pulse.beat, stop)
        finally:  # a device that fails leaves the fleet at once too
            server.close()
            notify(STOPPING)
            pulse.leave()
    finally:
        data.close()
        control.close()
    log.info("stopped", evaluations=server.stats.evaluations)
    return int(ExitCode.OK)


def serve(server: Serving, beat: Callable[[], None], stop: threading.Event) -> None:
    """Steps until `stop`; a broker that goes away is waited for, with growing pauses, for as long as it takes."""
    backoff_s = 0.0
    while not stop.is_set():
        try:
            beat()
            server.step()
        except AccessRefused:  # sent away: to wait changes nothing
            raise
        except BrokerError as error:
            if not backoff_s:
                log.warning("broker_lost", error=str(error))
                notify(f"STATUS=degraded: {error}")
            notify(WATCHDOG)  # waiting for a broker is not hanging
            backoff_s = min(MAX_BACKOFF_S, max(0.1, 2 * backoff_s))
            server.release()
            stop.wait(backoff_s)
        else:
            if backoff_s:
                log.info("broker_back")
            backoff_s = 0.0
    try:
        server.drain()
    except BrokerError as error:
        log.warning("last_batch_not_answered", error=str(error), remedy="its clients send it again")


class Pulse:
    """The worker's heartbeat in the control plane and its signs of life to the service manager."""

    def __init__(self, control: Bus, server: InferenceServer, worker: str, config: WorkerConfig) -> None:
        self._control = control
        self._server = server
        self._worker = worker
        self._config = config
        self._started_ms = now_ms()
        self._due_s = 0.0
        self._ready = False

    def beat(self) -> None:
        """Writes a heartbeat when one is due; the first one that arrives makes the process ready.

        A control plane that is away afterwards stops no evaluation: the follower says so, and the data plane may well be there.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self._config.heartbeat_s
        try:
            self._control.put(keys.beat(self._worker), codec.encode(self._heartbeat()), life_s=self._config.heartbeat_life_s)
        except BrokerError as error:
            if not self._ready or isinstance(error, AccessRefused):
                raise
            notify(WATCHDOG, f"STATUS=degraded: {error}")
            return
        notify(WATCHDOG if self._ready else READY, "STATUS=serving " + (", ".join(self._server.versions) or "no run yet"))
        self._ready = True

    def leave(self) -> None:
        """Takes the heartbeat away, so that nobody waits for it to expire."""
        try:
            self._control.delete(keys.beat(self._worker))
        except BrokerError as error:
            log.warning("heartbeat_left_behind", error=str(error))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            role="inference",
            worker=self._worker,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            schema=SCHEMA,
            started_ms=self._started_ms,
            sent_ms=now_ms(),
            rates={**self._server.rates(), **usage()},
            weight_versions=self._server.versions,
            unserved=self._server.unserved,
        )


def _store_of(config: Config, client: redis.Redis) -> Callable[[RunView], Fetch]:
    """How the weights of a run are fetched; its folder is looked for where the run says and, on another host, under `home`."""

    def of(view: RunView) -> Fetch:
        directory = weights_folder(view.record.directory, config.home, view.record.run)
        store = open_store(config.store, directory=directory, client=client)
        return fetch_from(store)

    return of


def _catch_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    return stop
