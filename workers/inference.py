"""The inference worker's process: connects, serves until a signal, beats from the serving loop, outlives broker outages."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import Protocol

import redis

from azq import logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus, admit_data_planes, connect_at_start
from azq.bus.same_host import HostRequests
from azq.bus.sharded import open_requests
from azq.config import Config, WorkerConfig, forget_environment
from azq.errors import AccessRefused, BrokerError, ExitCode
from azq.games import GameFiles
from azq.inference.device.engine import Engine
from azq.inference.serve.served import specs
from azq.inference.serve.server import InferenceServer
from azq.inference.weights import Fetch, fetch_from
from azq.ledger import Ledger
from azq.ledger.types import RunView
from azq.nets.device import Gauge, place, prepare_process
from azq.process.cards import LateGpu
from azq.process.heartbeat import Presence
from azq.process.interrupts import Interrupts, StopSign
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify
from azq.store import open_run_store
from azq.waiting import Backoff, meanwhile
from azq.wire.connect import agree_on_schema

BACKOFF = Backoff(0.1, 5.0)

log = logs.get(__name__)


class Serving(Protocol):
    """What the loop asks of a server."""

    def step(self) -> int: ...
    def drain(self) -> int: ...
    def release(self) -> None: ...


def main(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; returns an exit code.

    Raises ConfigError (no broker set, no such device), BrokerUnavailable or BrokerRefused when the broker fails at the start.
    """
    forget_environment()  # games in Python run in this process
    client = connect_at_start(config.broker)  # first: until then a signal simply ends the process
    with Interrupts() as stop, closing(RedisBus(client)) as control:
        admit_data_planes(config.broker)
        agree_on_schema(client)
        worker = f"inference@{socket.gethostname()}:{os.getpid()}"
        with meanwhile("first heartbeats", partial(_beat_until, control, worker, config.worker)):
            late = LateGpu(config.inference.device)
            placement = place(config.inference)
            prepare_process(placement.threads)
            engine = Engine(config.inference, placement)
        spec_of, store_of = specs(GameFiles(config.worker.game_files)), partial(_fetch_of, config, client)
        with closing(open_requests(config.broker, HostRequests(config.home))) as data:
            server = InferenceServer(control, data, Ledger(client), store_of, engine, worker, spec_of)
            beat = ServingBeat(control, server, worker, config.worker, Gauge(placement.device))
            beat.look = partial(late.check, placement.device.type)
            log.info("serving", worker=worker, device=str(placement.device), precision=placement.precision, threads=placement.threads)
            try:
                serve(server, beat.turn, stop)
            finally:  # a device that fails leaves the fleet at once too
                server.close()
                notify(STOPPING)
                beat.leave()
    log.info("stopped", evaluations=server.stats.evaluations)
    return int(ExitCode.OK)


def serve(server: Serving, beat: Callable[[], None], stop: StopSign) -> None:
    """Steps until `stop`; a broker that goes away is waited for, with growing pauses, for as long as it takes."""
    failures = 0
    while not stop.is_set():
        try:
            beat()
            server.step()
        except AccessRefused:  # sent away: to wait changes nothing
            raise
        except BrokerError as error:
            if not failures:
                log.warning("broker_lost", error=str(error))
                notify(f"STATUS=degraded: {error}")
            notify(WATCHDOG)  # waiting for a broker is not hanging
            failures += 1
            server.release()
            stop.wait(BACKOFF.pause_s(failures))
        else:
            if failures:
                log.info("broker_back")
            failures = 0
    try:
        server.drain()
    except BrokerError as error:
        log.warning("last_batch_not_answered", error=str(error), remedy="its clients send it again")


def _beat_until(control: Bus, worker: str, config: WorkerConfig, started: threading.Event) -> None:
    """Beats while a device is got ready: a worker that dies of that is missed, and counted where it dies repeatedly."""
    presence = Presence("inference", life_s=config.heartbeat_life_s, worker=worker)
    while not started.is_set():
        with suppress(BrokerError):
            presence.beat(control)
        started.wait(config.heartbeat_s)


class ServingBeat:
    """The worker's heartbeat in the control plane and its signs of life to the service manager."""

    def __init__(self, control: Bus, server: InferenceServer, worker: str, config: WorkerConfig, gauge: Gauge) -> None:
        self._control = control
        self._server = server
        self._gauge = gauge
        self.look: Callable[[], None] = lambda: None  # for a GPU that was late
        self._presence = Presence("inference", life_s=config.heartbeat_life_s, every_s=config.heartbeat_s, worker=worker)
        self._ready = False

    def turn(self) -> None:
        """Writes a heartbeat when one is due; the first one that arrives makes the process ready.

        A control plane that is away afterwards stops no evaluation: the follower says so, and the data plane may well be there.
        Raises `DeviceError` where a GPU was late.
        """
        if not self._presence.due():
            return
        self.look()
        server = self._server
        try:
            facts = {"weight_versions": server.versions, "unserved": server.unserved, "note": server.note, "by_run": server.stats.by_run()}
            self._presence.beat(self._control, server.rates() | self._gauge.figures, **facts)
        except BrokerError as error:
            if not self._ready or isinstance(error, AccessRefused):
                raise
            notify(WATCHDOG, f"STATUS=degraded: {error}")
            return
        notify(WATCHDOG if self._ready else READY, "STATUS=serving " + (", ".join(self._server.versions) or "no run yet"))
        self._ready = True

    def leave(self) -> None:
        """Takes the heartbeat away; where the control plane is gone it expires."""
        try:
            self._presence.leave(self._control)
        except BrokerError as error:
            log.warning("heartbeat_left_behind", error=str(error))


def _fetch_of(config: Config, client: redis.Redis, view: RunView) -> Fetch:
    """How the weights of a run are fetched; its folder is looked for where the run says and, on another host, under `home`."""
    return fetch_from(open_run_store(config.store, view.record, config.home, client))
