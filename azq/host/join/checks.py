"""What is looked at before a machine joins, each answered by one line."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis

from azq import __version__
from azq.bus.redis import RedisBus
from azq.config import StoreConfig
from azq.config.access import is_loopback
from azq.config.host import TLS_SCHEME
from azq.errors import AzqError, ConfigError, StateConflict, StoreError, WireError
from azq.findings import Finding
from azq.host.join.token import ANYWHERE
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.status.observe import read_weights
from azq.store import open_run_store
from azq.wire import fitness, keys
from azq.wire.codec import decode
from azq.wire.connect import address, address_of, translate
from azq.wire.messages import Fleet

CLOCK_WARN_S = 2.0
POLL_S = 0.2


def check_broker(client: redis.Redis, plane: str) -> list[Finding]:
    """A plane's server: how far away, which version, what is to be thought of it. Raises `ConfigError` and `BrokerError`."""
    began = time.perf_counter()
    with translate(client):
        client.ping()
    delay_ms, place = 1e3 * (time.perf_counter() - began), address_of(client)
    facts = fitness.facts_of(client)
    rows = [Finding(plane, "ok", f"{place} answers in {delay_ms:.1f} ms, {facts.program}")]
    verdict = fitness.judge(facts, plane, place)
    if verdict.error:
        raise verdict.error
    if verdict.reason:
        rows.append(Finding("durable" if plane == fitness.CONTROL else plane, "warn", verdict.reason))
    elif plane == fitness.CONTROL:
        rows.append(Finding("durable", "ok", "append-only file is on, nothing is evicted"))
    return rows


def check_clock(client: redis.Redis) -> Finding:
    with translate(client):
        before_s = time.time()
        seconds, micros = client.time()
        after_s = time.time()
    return judge_clock(seconds + micros / 1e6, (before_s + after_s) / 2)


def judge_clock(theirs_s: float, ours_s: float) -> Finding:
    """Leases are measured by the control plane's clock alone; a wrong one here only spoils latencies and log lines."""
    ahead_s = ours_s - theirs_s
    if abs(ahead_s) <= CLOCK_WARN_S:
        return Finding("clock", "ok", f"differs by {abs(ahead_s):.2f} s")
    direction = "ahead of" if ahead_s > 0 else "behind"
    return Finding("clock", "warn", f"{abs(ahead_s):.1f} s {direction} the control plane's: start chrony or systemd-timesyncd")


def wait_for_fleet(client: redis.Redis, patience_s: float) -> Fleet | None:
    """What the live daemon tells; None where none lives, also after a moment in which one may just start again."""
    deadline, pause = time.monotonic() + patience_s, threading.Event()
    while (fleet := read_fleet(client)) is None and time.monotonic() < deadline:
        pause.wait(POLL_S)
    return fleet


def read_fleet(client: redis.Redis) -> Fleet | None:
    """What the live daemon tells; None where none lives. Raises `StateConflict` for a daemon of another schema."""
    frame = RedisBus(client).get(keys.FLEET)
    if frame is None:
        return None
    try:
        return decode(frame, Fleet)
    except WireError as error:
        raise StateConflict(f"the daemon of this fleet speaks another language than azq {__version__} here: {error}") from None


def check_fleet(fleet: Fleet | None) -> Finding:
    if fleet is None:
        return Finding("daemon", "warn", "none lives on this control plane: jobs come once it is started (azq daemon, azq up)")
    if fleet.version != __version__:
        return Finding("daemon", "warn", f"azq {fleet.version} there, {__version__} here, one schema: it works; run one version soon")
    return Finding("daemon", "ok", f"azq {fleet.version}, the same as here")


def choose_data_urls(given: str, fleet: Fleet | None, control_url: str) -> list[str]:
    """The data planes' addresses, without password: the one given, else the daemon's, seen from here.

    Raises `ConfigError` where neither tells.
    """
    if given:
        return [given]
    if fleet is None:
        raise ConfigError(
            "no daemon lives that could tell where the data plane is; start it (azq daemon, azq up), or give --data redis://..."
        )
    urls = fleet.data_urls or (fleet.data_url,)
    if not all(urls):
        raise ConfigError(
            "the data plane of this fleet listens on a unix socket; set broker.public_data_url on the first machine, or give --data"
        )
    return [_from_here(url, control_url) for url in urls]


def _from_here(url: str, control_url: str) -> str:
    """What is the machine itself over there is the control plane's machine from here."""
    parts, control = urlsplit(url), urlsplit(control_url)
    if not control.hostname or not (is_loopback(parts.hostname or "") or parts.hostname in ANYWHERE):
        return url
    host = f"[{control.hostname}]" if ":" in control.hostname else control.hostname
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))


def check_secured(control_url: str, data_url: str) -> list[Finding]:
    """A data plane in plaintext beside a control plane that speaks TLS is worth a word."""
    if not control_url.startswith(f"{TLS_SCHEME}://") or not data_url.startswith("redis://"):
        return []
    return [Finding("data", "warn", f"{address(data_url)} is plaintext: the network can read and change evaluations; let it speak TLS")]


def check_store(client: redis.Redis, settings: StoreConfig | str, home: Path) -> Finding:
    """Whether this machine can read the newest weights of each live run. Raises `StoreError` with the remedy where it cannot."""
    store_url = settings if isinstance(settings, str) else settings.url
    read: list[str] = []
    for record in (view.record for view in Ledger(client).runs() if view.state is RunState.RUNNING):
        run = record.run
        for event in read_weights(RedisBus(client), run):
            store = open_run_store(settings, record, home, client)
            try:
                data = store.get(event.uri, event.sha256)
            except StoreError as error:
                remedy = 'set store.url = "redis" (or s3://...) on the first machine' if event.uri.startswith("file:") else "mend the store"
                raise StoreError(f"weights of run {run} are out of reach here: {error}; {remedy}") from None
            read.append(f"{run} version {event.version} ({len(data) / 1e6:.1f} MB)")
    if read:
        return Finding("weights", "ok", f"read {', '.join(read)} from {store_url}")
    if store_url == "file":
        return Finding("weights", "warn", 'none yet, and store.url = "file" keeps them on the first machine: set "redis" or s3://... there')
    return Finding("weights", "ok", f"none yet; they will come from {store_url}")


def explain_refusal(url: str, error: AzqError, token: bool) -> AzqError:
    what = "is wrong there" if token else "is needed: --token-file FILE, or the variable AZQ_JOIN_TOKEN"
    remedy = "`azq join-token` on the first machine prints it"
    return type(error)(f"broker at {address(url)} requires its token, which {what}; {remedy}")
