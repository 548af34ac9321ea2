"""The process behind `azq worker`: its Celery app with tasks and signals, what main process and children share, and its main."""

from __future__ import annotations

import gc
import importlib
import signal
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from typing import Any

from billiard.process import current_process
from celery import Celery, signals
from celery.exceptions import SecurityWarning

from azq import logs
from azq.bus.redis import RedisBus, admit_data_planes, connect_at_start, control_url_of
from azq.config import Config, forget_environment
from azq.errors import AzqError, BrokerUnavailable, ConfigError, ExitCode, JobFailed
from azq.ledger import Ledger
from azq.process.liveness import STOPPING, notify
from azq.process.start import end_with, parent_pipe
from azq.queue import detect_tags, make_app
from azq.tracing import TRACES
from azq.wire.connect import address, agree_on_schema, connect
from azq.wire.fitness import CONTROL, facts_of, judge
from azq.wire.kinds import Kind, split_queue, task_name
from workers.children import Board, ChildHeartbeat, PoolWatchdog
from workers.lifecycle import LoopMark, PatientConsumer, SoftWorker, WorkerHeartbeat, end_for_sure, may_listen, node_name, read_only

GARBAGE_AFTER = 50_000  # objects more than there were: the trees of games in Python are many objects and no cycles
TASKS = {Kind.SELFPLAY: "workers.selfplay", Kind.EVAL: "workers.evaluate"}  # imported by the child that runs the first of its kind

log = logs.get(__name__)


def main(config: Config, queues: Sequence[str], concurrency: int) -> int:
    """Runs a Celery worker on these queues until SIGTERM; returns its exit code.

    Raises `ConfigError` for no queues or malformed ones, `BrokerUnavailable` or `BrokerRefused` when the broker does not let it
    in or lets it in no longer, and `SchemaMismatch` where the control plane belongs to another azq.
    """
    warnings.simplefilter("ignore", SecurityWarning)  # it warns root of pickle, which this app does not accept
    if not queues:
        raise ConfigError("no queues to serve; give --queues selfplay.cpu,eval.cpu")
    app = build_app(config, queues)
    with closing(connect_at_start(config.broker)) as client:
        agree_on_schema(client)
        app.conf.worker_enable_remote_control = may_listen(client)
    admit_data_planes(config.broker)
    worker = app.subclass_with_self(SoftWorker, name="Worker", attribute="app")(
        hostname=node_name(queues),
        concurrency=concurrency,
        pool_cls="prefork",
        consumer_cls=PatientConsumer,
        loglevel="WARNING",
        queues=list(queues),
        quiet=True,
        no_color=True,
        without_mingle=True,
        without_gossip=True,
    )
    try:
        worker.start()
    finally:
        heartbeat = app.azq.heartbeat
        if heartbeat is not None:
            heartbeat.end()
    if heartbeat is not None and heartbeat.refused is not None:
        raise heartbeat.refused
    return int(worker.exitcode or ExitCode.OK)


class WorkerParts:
    """Hung on the app as `app.azq`: settings, and the board that main process and children share."""

    def __init__(self, config: Config, queues: Sequence[str]) -> None:
        self.config = config
        self.tags = tuple(dict.fromkeys((*detect_tags(), *config.worker.tags, *(split_queue(queue)[1] for queue in queues))))
        self.board = Board(1)  # until it is known how many children share it
        self.heartbeat: WorkerHeartbeat | None = None
        self.watchdog: PoolWatchdog | None = None

    def open_control(self) -> RedisBus:
        return RedisBus(connect(control_url_of(self.config.broker)))

    def open_ledger(self) -> Ledger:
        return Ledger(connect(self.config.broker.control_url))

    def takes_writes(self) -> bool:
        """Whether the control plane is there and takes writes; where it never will, the next connection says why."""
        try:
            with closing(connect(self.config.broker.control_url)) as client:
                return judge(facts_of(client), CONTROL, address(self.config.broker.control_url)).verdict not in ("full", "passing")
        except BrokerUnavailable:
            return False
        except AzqError:
            return True

    @cached_property
    def context(self) -> Any:
        """This child's belongings, made at its first job: nothing heavy is imported by the main process."""
        from workers.context import Context

        gc.freeze()  # what was imported stays
        gc.set_threshold(GARBAGE_AFTER)
        return Context(self.config, self.child_heartbeat)

    @cached_property
    def child_heartbeat(self) -> ChildHeartbeat:
        """What this child says of itself."""
        return ChildHeartbeat(self.board, getattr(current_process(), "index", 0) or 0)


def build_app(config: Config, queues: Sequence[str] = ()) -> Celery:
    """The app with its tasks, able to serve `queues`; raises `ConfigError` where no broker is configured or a queue is malformed."""
    control_url = control_url_of(config.broker)
    shared = WorkerParts(config, queues)
    app = make_app(control_url, tags=shared.tags)
    app.conf.worker_redirect_stdouts = False  # the log lines are complete as they are
    app.azq = shared
    app.steps["consumer"].add(LoopMark)
    for kind, module in TASKS.items():
        _add_task(app, kind, module)
    _connect_signals(app)
    return app


def _add_task(app: Celery, kind: Kind, module: str) -> None:
    def run(job_id: str, attempt: int) -> None:
        importlib.import_module(module).run(app.azq.context, job_id, attempt)

    app.task(name=task_name(kind), Request="workers.lifecycle:ReportedRequest", throws=(JobFailed,))(run)


def _connect_signals(app: Celery) -> None:
    """The hooks of the worker's life; weak=False because nothing else refers to these functions."""
    shared: WorkerParts = app.azq
    life = parent_pipe()  # of this process, from which children are forked

    def init(sender: Any, **_: Any) -> None:
        read_only()
        shared.board = Board(sender.concurrency or 1)

    def ready(sender: Any, **_: Any) -> None:
        queues = sorted(app.amqp.queues.consume_from)
        slots = sender.controller.concurrency or 1
        shared.heartbeat = WorkerHeartbeat(shared.open_control, shared.config.worker, shared.board, queues, shared.tags, slots)
        shared.heartbeat.loop_turned_s = time.monotonic()
        shared.heartbeat.start()
        shared.watchdog = PoolWatchdog(shared.board, shared.open_ledger)
        shared.watchdog.start()
        broker = address(shared.config.broker.control_url)
        log.info("serving", queues=queues, tags=shared.tags, concurrency=slots, evaluator=shared.config.worker.evaluator, broker=broker)

    def shutting_down(**_: Any) -> None:
        shared.board.stop()
        notify(STOPPING, "STATUS=giving work back")
        end_for_sure()

    def shutdown(**_: Any) -> None:
        if shared.watchdog is not None:
            shared.watchdog.end()
        if shared.heartbeat is not None:
            shared.heartbeat.end()

    def child(**_: Any) -> None:
        logs.setup("job")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that goes away says so to the main process, too, which stops this one
        end_with(life, signal.SIGKILL)  # celery has prctl do so, which only Linux has; children hold each other's pipes open
        forget_environment()  # games in Python run in this process
        shared.child_heartbeat.start()

    signals.worker_init.connect(init, weak=False)
    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.worker_shutdown.connect(shutdown, weak=False)
    signals.worker_process_init.connect(child, weak=False)
    signals.worker_process_shutdown.connect(lambda **_: TRACES.stop(), weak=False)
