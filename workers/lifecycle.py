"""The life of a Celery worker process: readiness, heartbeats, a soft stop that gives all work back."""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import redis
from billiard.einfo import ExceptionWithTraceback
from celery import bootsteps
from celery.apps.worker import Worker
from celery.exceptions import Ignore
from celery.utils.serialization import jsonify
from celery.worker.consumer import Consumer
from celery.worker.control import Panel
from celery.worker.request import Request
from celery.worker.state import maybe_shutdown

from azq import logs
from azq.config import WorkerConfig
from azq.errors import AccessRefused
from azq.masking import masked_settings
from azq.process.heartbeat import Presence
from azq.process.interrupts import leave_terminal
from azq.process.liveness import READY, WATCHDOG, notify, waits_for_brokers, watchdog_interval_s
from azq.wire.connect import translate
from azq.wire.keys import PIDBOX
from azq.wire.kinds import Kind
from workers.children import Board, merge, versions

if TYPE_CHECKING:
    from azq.bus.base import Bus

END_AFTER_S = 1.0
STOP_AFTER_S = 12.0  # a pool that has not ended by then never will (celery's warm shutdown can hang)
LOOP_TICK_S = 1.0
CONNECT_EVERY_S = 1.0
LOOP_TICKS = 3.0  # the event loop must have turned within so many watchdog intervals

log = logs.get(__name__)


def role_of(queues: Sequence[str]) -> str:
    """The role a worker of these queues is listed under: the first kind of job that it takes."""
    return next((kind for kind in Kind if any(queue.startswith(f"{kind}.") for queue in queues)), Kind.EVAL)


def node_name(queues: Sequence[str]) -> str:
    """A Celery node name that no other process has."""
    return f"{'+'.join(queues)}-{os.getpid()}@{socket.gethostname()}"


class WorkerHeartbeat(threading.Thread):
    """Beats from the main process, also while all children are busy, and feeds systemd's watchdog while the event loop turns."""

    def __init__(self, bus: Callable[[], Bus], config: WorkerConfig, board: Board, queues: Sequence[str], tags: Sequence[str], slots: int):
        super().__init__(name="heartbeat", daemon=True)
        self._make_bus = bus
        self._bus: Bus | None = None
        self._config = config
        self._board = board
        facts: dict[str, Any] = {"queues": tuple(queues), "tags": tuple(tags), "slots": slots}
        self._presence = Presence(role_of(queues), life_s=config.heartbeat_life_s, worker=node_name(queues), **facts)
        self._over = threading.Event()
        self._lost = False
        self.refused: AccessRefused | None = None
        self._away_s = -math.inf  # when the broker was last found away
        self.loop_turned_s: float | None = None  # None: the loop is not running because the broker is away

    def run(self) -> None:
        """Beats until `end`, whatever happens to the broker."""
        interval = min(self._config.heartbeat_s, watchdog_interval_s() or self._config.heartbeat_s)
        with waits_for_brokers():
            while not self._over.wait(0.0 if self._bus is None and not self._lost else interval):
                self._try(self._beat)
                if loop_lives(self.loop_turned_s, time.monotonic(), LOOP_TICKS * max(interval, 2.0), self._away_s):
                    notify(WATCHDOG)

    def end(self) -> None:
        """Stops beating and says good-bye, so that its heartbeat is gone at once."""
        self._over.set()
        if self.is_alive():
            self.join(END_AFTER_S)  # or its last beat might come after the good-bye
        if self._bus is not None:
            self._try(self._presence.leave)

    def _beat(self, bus: Bus) -> None:
        figures = self._board.read()
        self._presence.beat(bus, merge(figures), weight_versions=versions(figures))

    def _try(self, action: Callable[[Bus], None]) -> None:
        try:
            self._bus = self._bus or self._make_bus()
            action(self._bus)
            self._lost = False
        except AccessRefused as error:  # this machine was sent away: the worker ends as at a SIGTERM
            self.refused = error
            self._over.set()
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception as error:  # the thread goes on; the reason is said once per outage
            if not self._lost:
                log.warning("heartbeat_failed", reason=f"{type(error).__name__}: {error}")
            self._lost = True
            self._away_s = time.monotonic()


def loop_lives(turned_s: float | None, now_s: float, limit_s: float, away_s: float = -math.inf) -> bool:
    """Whether the watchdog may be fed: the event loop turned lately, or it rests or waits because the broker is, or lately was, away."""
    return turned_s is None or now_s - max(turned_s, away_s) < limit_s


def end_for_sure() -> None:
    """Ends this process after `STOP_AFTER_S`, whatever blocks it, and prints where that is; open leases are taken care of by their end."""
    faulthandler.dump_traceback_later(STOP_AFTER_S, exit=True)  # in C: this may be a signal's handler, above a frame that holds a lock


class SoftWorker(Worker):  # type: ignore[misc]
    """Celery's worker whose soft shutdown (SIGQUIT) tells the children at once and lasts only as long as they need."""

    def wait_for_soft_shutdown(self) -> None:
        """Waits until no child holds a job, at most the configured time."""
        board: Board = self.app.azq.board
        board.stop()
        deadline, pause = time.monotonic() + self.app.conf.worker_soft_shutdown_timeout, threading.Event()
        while board.busy() and time.monotonic() < deadline:
            pause.wait(0.05)

    def install_platform_tweaks(self, worker: Worker) -> None:
        """Celery's signals, but for SIGHUP: it would restart this process; here a terminal that goes away asks to stop."""
        hang_up = signal.getsignal(signal.SIGHUP)
        super().install_platform_tweaks(worker)
        signal.signal(signal.SIGHUP, hang_up if hang_up is signal.SIG_IGN else _stop_at_hang_up)


def _stop_at_hang_up(*_: object) -> None:
    leave_terminal()
    os.kill(os.getpid(), signal.SIGTERM)


class ReportedRequest(Request):  # type: ignore[misc]
    """A message whose refusal is an event, too: of one that is ignored Celery says no more than that its task started."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Acknowledges the message and says how its task ended."""
        if isinstance(exc_info.exception, ExceptionWithTraceback):  # of a process that was lost; the event would not name it
            exc_info.exception = exc_info.exception.exc
        super().on_failure(exc_info, send_failed_event, return_ok)
        if isinstance(exc_info.exception, Ignore):
            self.send_event("task-revoked", terminated=False, signum=None, expired=False)


class PatientConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, which connects where the control plane takes writes: it would come and go five times a second elsewhere."""

    def connect(self) -> Any:
        """Waits for that as long as it takes; raises what a signal asks for."""
        while not self.app.azq.takes_writes():
            maybe_shutdown()
            time.sleep(CONNECT_EVERY_S)
        return super().connect()


class LoopMark(bootsteps.StartStopStep):  # type: ignore[misc]
    """Marks that the event loop turns, and READY once the broker is there; a consumer that is down for a reconnect marks nothing."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        self._mark(consumer)
        self._timer = consumer.timer.call_repeatedly(LOOP_TICK_S, self._mark, (consumer,))
        notify(READY, "STATUS=consuming")

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if consumer.app.azq.heartbeat is not None:
            consumer.app.azq.heartbeat.loop_turned_s = None

    @staticmethod
    def _mark(consumer: Any) -> None:
        if consumer.app.azq.heartbeat is not None:
            consumer.app.azq.heartbeat.loop_turned_s = time.monotonic()


TELLS = ("ping", "stats", "conf", "active", "reserved", "scheduled", "revoked", "registered", "active_queues")
ANSWERED_WITHIN_S = 5.0


class ReadOnlyCommands(dict[str, Callable[..., Any]]):
    """The commands by name; every other one is answered, and not carried out."""

    def __missing__(self, command: str) -> Callable[..., Any]:
        return partial(_refused, command)


def read_only() -> None:
    """Leaves this process's remote control the commands that change nothing."""
    Panel.data = ReadOnlyCommands({name: partial(_plain_answer, Panel.data[name]) for name in TELLS})


def may_listen(client: redis.Redis) -> bool:
    """Whether the broker lets this worker hear commands; it does not where its users are of an older azq."""
    try:
        with translate(client), client.pubsub() as commands:  # type: ignore[no-untyped-call]
            commands.psubscribe(PIDBOX)
            commands.get_message(timeout=ANSWERED_WITHIN_S)
    except AccessRefused as error:
        log.warning("no_remote_control", reason=str(error), remedy="make the brokers' users again: `azq fleet acl --apply`")
        return False
    return True


def _refused(command: str, _state: Any, **_arguments: Any) -> Mapping[str, str]:
    return {"error": f"azq's workers know no command {command!r}; jobs are revoked and workers counted through azq's own interface"}


def _plain_answer(command: Callable[..., Any], state: Any, **arguments: Any) -> Any:
    """Celery's own answer as plain values, without the password that a broker's address holds."""
    return masked_settings(jsonify(command(state, **arguments), unknown_type_filter=repr))
