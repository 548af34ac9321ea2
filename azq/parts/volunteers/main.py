"""The gateway's process: takes jobs for tabs from the queue, serves tabs in another thread, beats, and gives all games back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_network

import redis
from kombu.message import Message
from kombu.messaging import Consumer
from starlette.types import ASGIApp

from azq import logs
from azq.bus.base import Bus
from azq.bus.redis import RedisBus, connect_at_start, control_url_of
from azq.config import Config, GatewayConfig
from azq.config.access import check_tls
from azq.errors import AccessRefused, AzqError, BrokerError, ExitCode
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.metrics import GAMES_PER_S, SIMULATIONS_PER_S, TABS, Rate
from azq.parts.volunteers.contributor_store import ContributorStore
from azq.parts.volunteers.gateway import Gateway
from azq.parts.volunteers.hub import Backing, volunteer_secret
from azq.parts.volunteers.models import StoredNetworks
from azq.parts.volunteers.pages import Public, make_site
from azq.parts.volunteers.verifier import VerifierProcess, VerifyingJudge
from azq.process.heartbeat import Presence
from azq.process.interrupts import Interrupts, StopSign
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify, watchdog_interval_s
from azq.process.start import PYTHON
from azq.process.supervisor import ChildSpec, Supervisor
from azq.process.webserver import BoundedListener, WebServer, open_listener, url_of
from azq.queue import make_app, make_queue
from azq.status.workers import GATEWAY
from azq.waiting import Backoff
from azq.wire.connect import agree_on_schema
from azq.wire.kinds import BROWSER, Kind, queue_name
from azq.wire.tabs import MAX_TAB_BYTES
from workers.context import sections_now

SELFPLAY, MATCHES = queue_name(Kind.SELFPLAY, BROWSER), queue_name(Kind.EVAL, BROWSER)
MATCH_ROLE = f"{GATEWAY}-matches"
BACKOFF = Backoff(0.2, 5.0)
STOP_WITHIN_S = 10.0
JOBS = 2  # whose games it hands out at once
VISITORS = 512  # connections besides those of tabs: of pages, networks, and short ones
HANG_AFTER_S = 8.0  # an event loop that has not turned for so long is not fed to the watchdog

log = logs.get(__name__)


def main(config: Config) -> int:
    """Serves tabs until SIGTERM or SIGINT; returns an exit code.

    Raises `ConfigError` (no broker set, port taken, TLS files that cannot be used), `BrokerUnavailable` or `BrokerRefused`.
    """
    settings = config.gateway
    check_tls(settings, "gateway")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each tab is a descriptor
    with contextlib.ExitStack() as stack:
        proxies = [ip_network(proxy) for proxy in settings.proxies]
        listener = stack.enter_context(open_listener(settings, "gateway", most=settings.max_tabs + VISITORS, proxies=proxies))
        client = connect_at_start(config.broker)
        stack.callback(client.close)
        stop = stack.enter_context(Interrupts())
        agree_on_schema(client)
        backing = backing_of(config, client)
        gateway = Gateway(settings, backing)
        public = Public(gateway, backing, RedisBus(client))
        server = stack.enter_context(serving(make_site(gateway, backing.networks, public, settings.url), listener, settings))
        jobs = JobSource(config, gateway, client, server.loop)
        stack.callback(jobs.end)
        children = Supervisor()
        stack.callback(lambda: children.stop(tuple(children.children), threading.Event().wait))
        children.start(ChildSpec("models", [*PYTHON, "-m", "azq.parts.volunteers.model_maker"], None))
        jobs.start()
        log.info("listening", url=settings.url or url_of(listener, tls=settings.tls_certificate is not None))
        _beat(config, gateway, RedisBus(client), children, server, stop)
        notify(STOPPING)
    log.info("stopped")
    return int(ExitCode.OK)


def backing_of(config: Config, client: redis.Redis) -> Backing:
    """What the gateway works with."""
    networks = StoredNetworks(config.store, config.home, client)
    contributors = ContributorStore(client, config.gateway, secret := volunteer_secret(client))
    return Backing(Ledger(client), contributors, VerifyingJudge(contributors, VerifierProcess()), networks, secret)


@contextlib.contextmanager
def serving(app: ASGIApp, listener: BoundedListener, config: GatewayConfig) -> Iterator[WebServer]:
    """Serves while entered. Raises `AzqError` where it does not get that far."""
    server = WebServer(
        app,
        listener,
        "the gateway",
        config,
        stop_within_s=STOP_WITHIN_S,
        ws="websockets-sansio",
        ws_max_size=2 * MAX_TAB_BYTES,  # a frame that is only somewhat too long is answered
        ws_per_message_deflate=False,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        proxy_headers=bool(config.proxies),
        forwarded_allow_ips=list(config.proxies),
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


class JobSource(threading.Thread):
    """Takes jobs for tabs from Celery's queue and claims them; a message is acknowledged once its lease hands out no more games."""

    def __init__(self, config: Config, gateway: Gateway, client: redis.Redis, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="jobs", daemon=True)
        self._app = make_app(control_url_of(config.broker), tags=(BROWSER,))
        self._ledger, self._bus = Ledger(client), RedisBus(client)
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._lease_s = config.daemon.lease_s
        self._slots = JOBS
        self._gateway = gateway
        self._loop = loop
        self._over = threading.Event()
        self._ended: list[Message] = []

    def run(self) -> None:
        failures = 0
        while not self._over.wait(BACKOFF.pause_s(failures)):
            try:
                self._consume()
                failures = 0
            except Exception as error:  # whatever kombu makes of a broker that is away
                failures += 1
                if failures == 1:
                    log.warning("queue_lost", reason=f"{type(error).__name__}: {error}")

    def end(self) -> None:
        """Takes no more jobs."""
        self._over.set()
        self.join(STOP_WITHIN_S)

    def _consume(self) -> None:
        """Takes messages until `end`; raises what kombu raises."""
        self._ended = []
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(self._app.connection_for_read())
            for queue in (SELFPLAY, MATCHES):  # each by its own channel, so that long leases on games keep no match waiting
                channel = stack.enter_context(connection.channel())
                options = {"on_message": self._take, "accept": ["msgpack"], "prefetch_count": self._slots}
                stack.enter_context(Consumer(channel, [make_queue(queue)], **options))  # type: ignore[no-untyped-call]
            while not self._over.is_set():
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.2)
                while self._ended:
                    self._ended.pop().ack()  # type: ignore[no-untyped-call]

    def _take(self, message: Message) -> None:
        try:
            (job_id, attempt), *_ = message.decode()  # type: ignore[no-untyped-call]
            lease = self._ledger.claim(job_id, attempt, self._owner, self._lease_s)
        except (ValueError, TypeError, AzqError) as error:  # the daemon publishes unclaimed jobs again
            log.warning("job_left", reason=str(error))
            lease = None
        if lease is None or not self._begin(lease, message):
            message.ack()  # type: ignore[no-untyped-call]

    def _begin(self, lease: Lease, message: Message) -> bool:
        try:
            view = self._ledger.run(lease.job.run)
            sections = sections_now(self._ledger, self._bus, view)
        except AzqError as error:
            log.warning("job_dropped", job=lease.job.job_id, reason=str(error))
            return False
        ended: Callable[[], None] = functools.partial(self._ended.append, message)
        self._loop.call_soon_threadsafe(self._gateway.begin, lease, view, sections, ended)
        return True


def _beat(config: Config, gateway: Gateway, bus: Bus, children: Supervisor, server: WebServer, stop: StopSign) -> None:
    """Publishes what the gateway does until `stop`. Raises `AccessRefused`, and `AzqError` where it serves no more."""
    worker = config.worker
    presence = Presence(GATEWAY, life_s=worker.heartbeat_life_s, queues=(SELFPLAY,), tags=(BROWSER,), slots=JOBS)
    matches = Presence(MATCH_ROLE, life_s=worker.heartbeat_life_s, queues=(MATCHES,), tags=(BROWSER,), slots=JOBS)
    interval_s = min(worker.heartbeat_s, watchdog_interval_s() or worker.heartbeat_s)
    rates, ready = {GAMES_PER_S: Rate(), SIMULATIONS_PER_S: Rate()}, False
    while True:
        if server.ending and not stop.is_set():
            raise AzqError("the gateway's server ended; see the lines above")
        children.tick()
        for name, counter in ((GAMES_PER_S, "accepted"), (SIMULATIONS_PER_S, "simulations")):
            rates[name].add(gateway.counts.games[counter] - rates[name].total)
        figures = {name: rate.per_s() for name, rate in rates.items()} | {TABS: float(len(gateway.links))}
        versions = {name: hub.network.version for name, hub in tuple(gateway.hubs.items()) if hub.network}
        try:
            presence.beat(bus, figures, weight_versions=versions, note=f"{len(gateway.links)} tabs")
            if gateway.plays_matches:
                matches.beat(bus)
            else:
                matches.leave(bus)
        except AccessRefused:
            raise
        except BrokerError as error:
            log.warning("heartbeat_failed", reason=str(error))
        if time.monotonic() - gateway.turned_s < HANG_AFTER_S:
            notify(WATCHDOG if ready else READY, f"STATUS=serving {len(gateway.links)} tabs")
            ready = True
        if stop.wait(interval_s):
            break
    with contextlib.suppress(BrokerError):
        presence.leave(bus)
        matches.leave(bus)
