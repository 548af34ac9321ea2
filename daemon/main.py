"""The operations daemon: binds, serves and ticks until a signal; the first tick that reaches the control plane takes its lock.

It does not know its REST interface (`daemon.api`): who starts it hands in what loads that.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from azq import logs
from azq.bus.redis import control_url_of
from azq.config import Config
from azq.config.access import check_binding, check_tls, with_own_token
from azq.errors import AzqError, BrokerError, ExitCode
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify, patient
from azq.process.webserver import open_listener
from azq.store.signing import make_key
from azq.wire.connect import agree_on_schema, open_client
from azq.wire.fitness import admit
from daemon.serve.loop import TICK_S, DaemonLock, Loop, build
from daemon.serve.notices import Webhook

if TYPE_CHECKING:
    import redis

    from azq.process.webserver import BoundedListener, WebServer

    Serving: TypeAlias = Callable[[Config, redis.Redis, Loop, BoundedListener], AbstractContextManager[WebServer]]

SWITCH_S = 0.001  # a large answer under way must not hold up the small ones

log = logs.get(__name__)


def main(config: Config, load_interface: Callable[[], Serving]) -> int:
    """Runs until SIGTERM or SIGINT, also while the control plane is away, takes no writes or was never reached; returns an exit code.

    Raises what waiting does not mend: `ConfigError` (open binding without token, unusable token or TLS files, port taken, no broker set or
    one that is not fit), `BrokerRefused`, `SchemaMismatch` at the broker's first answer, `StateConflict` (another daemon serves it).
    """
    check_binding(config.daemon)
    check_tls(config.daemon)
    url = control_url_of(config.broker)
    config = with_own_token(config, make=True)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(open_listener(config.daemon))
        client = open_client(url)
        stack.callback(client.close)
        stop = stack.enter_context(Interrupts())  # until here a signal simply ends the process
        lock = DaemonLock(client)
        webhook = stack.enter_context(Webhook(config.notices))
        loop = build(config, client, lock, webhook.send, enter=partial(_enter, client, lock, partial(_stop_within, stop), config.home))
        stack.callback(_quietly, lock.let_go)
        loop.tick()  # a daemon that died is followed sooner: to load the REST interface takes as long as all else together
        rest = stack.enter_context(load_interface()(config, client, loop, listener))
        tune_process()
        notify(READY, f"STATUS={loop.health.status}")
        _serve(loop, rest, stop)
        notify(STOPPING)
        _quietly(loop.leave)
    log.info("stopped")
    return int(ExitCode.OK)


def _enter(client: redis.Redis, lock: DaemonLock, stops: Callable[[float], bool], home: Path) -> None:
    """Once, when the control plane answers: looks whether it is fit, takes the lock, agrees on the schema, makes the store's key."""
    admit(client)
    with patient(2 * lock.life_s):
        lock.wait(stops)
    agree_on_schema(client, upgrade=True)
    make_key(client, home)


def tune_process() -> None:
    """Makes this process answer quickly while it ticks.

    What was loaded so far goes out of the garbage collector's sight: to look through it all takes longer than a tick. And threads take
    turns sooner than every 5 ms, or the one that serves requests would wait so long each time that it has to be woken.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)


def _serve(loop: Loop, rest: WebServer, stop: Interrupts) -> None:
    """Ticks until a signal; a tick that ended is life, however it ended."""
    while not _stop_within(stop, TICK_S):
        loop.tick()
        notify(WATCHDOG, f"STATUS={loop.health.status}")
        if not rest.alive:
            raise AzqError("the REST interface died; see the lines above")


def _stop_within(stop: Interrupts, seconds: float) -> bool:
    """True when a stop was asked for, now or within that time."""
    if not stop.wait(seconds):
        return False
    log.info("stopping", signal=stop.last.name if stop.last else "")
    return True


def _quietly(leave: Callable[[], None]) -> None:
    with contextlib.suppress(BrokerError):
        leave()
