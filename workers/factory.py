"""Builds the Celery app of a worker: tasks, signals, and what main process and children share."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import redis
from billiard.process import current_process
from celery import Celery, bootsteps, signals
from celery.apps.worker import Worker

from azq import logs
from azq.bus.redis import RedisBus
from azq.config import Config, forget_environment
from azq.errors import ConfigError
from azq.ledger import Ledger
from azq.process.liveness import READY, STOPPING, notify
from azq.queue import detect_tags, make_app
from azq.wire.connect import connect
from azq.wire.kinds import Kind, split_queue, task_name
from workers.board import Board
from workers.children import Care, Signs
from workers.lifecycle import STOP_AFTER_S, Heart, end_for_sure

LOOP_TICK_S = 1.0


class Shared:
    """Hung on the app as `app.azq`: settings, and the board that main process and children share."""

    def __init__(self, config: Config, queues: Sequence[str]) -> None:
        self.config = config
        self.tags = tuple(dict.fromkeys((*detect_tags(), *config.worker.tags, *(split_queue(queue)[1] for queue in queues))))
        self.board: Board | None = None
        self.heart: Heart | None = None
        self.care: Care | None = None
        self._context: Any = None

    def open_control(self) -> RedisBus:
        """A new connection to the control plane."""
        return RedisBus(self._connect())

    def open_ledger(self) -> Ledger:
        """The ledger, over a connection of its own."""
        return Ledger(self._connect())

    def _connect(self) -> redis.Redis:
        broker = self.config.broker
        return connect(broker.control_url, timeout_s=broker.connect_timeout_s)

    def context(self) -> Any:
        """This child's belongings, made at its first job: nothing heavy is imported by the main process."""
        if self._context is None:
            from workers.context import Context

            self._context = Context(self.config, self.signs)
        return self._context

    @cached_property
    def signs(self) -> Signs:
        """What this child says of itself."""
        return Signs(self.board or Board(1), getattr(current_process(), "index", 0) or 0)


class SoftWorker(Worker):  # type: ignore[misc]
    """Celery's worker whose soft shutdown (SIGQUIT) tells the children at once and lasts only as long as they need."""

    def wait_for_soft_shutdown(self) -> None:
        """Waits until no child holds a job, at most the configured time."""
        shared: Shared = self.app.azq
        if shared.board is None:
            return
        shared.board.stop()
        deadline = time.monotonic() + self.app.conf.worker_soft_shutdown_timeout
        pause = threading.Event()
        while shared.board.busy() and time.monotonic() < deadline:
            pause.wait(0.05)


class Loop(bootsteps.StartStopStep):  # type: ignore[misc]
    """Marks that the event loop turns, and READY once the broker is there; a consumer that is down for a reconnect marks nothing."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        """The consumer is up."""
        self._mark(consumer)
        self._timer = consumer.timer.call_repeatedly(LOOP_TICK_S, self._mark, (consumer,))
        notify(READY, "STATUS=consuming")

    def stop(self, consumer: Any) -> None:
        """The consumer is down."""
        if self._timer is not None:
            self._timer.cancel()
        if consumer.app.azq.heart is not None:
            consumer.app.azq.heart.loop_turned_s = None

    @staticmethod
    def _mark(consumer: Any) -> None:
        if consumer.app.azq.heart is not None:
            consumer.app.azq.heart.loop_turned_s = time.monotonic()


def build_app(config: Config, queues: Sequence[str] = ()) -> Celery:
    """The app with both tasks, able to serve `queues`; raises `ConfigError` where no broker is configured or a queue is malformed."""
    if not config.broker.control_url:
        raise ConfigError("broker.control_url is empty; set it in azq.toml or AZQ_BROKER__CONTROL_URL, or start everything with `azq up`")
    shared = Shared(config, queues)
    app = make_app(config.broker.control_url, tags=shared.tags)
    app.conf.worker_redirect_stdouts = False  # the log lines are complete as they are
    app.azq = shared
    app.steps["consumer"].add(Loop)
    _add_tasks(app)
    _connect_signals(app)
    return app


def _add_tasks(app: Celery) -> None:
    def selfplay(job_id: str, attempt: int) -> None:
        """One slice of self-play."""
        from workers import selfplay

        selfplay.run(app.azq.context(), job_id, attempt)

    def evaluate(job_id: str, attempt: int) -> None:
        """One match or one grading."""
        from workers import evaluate

        evaluate.run(app.azq.context(), job_id, attempt)

    app.task(name=task_name(Kind.SELFPLAY), max_retries=3, default_retry_delay=5)(selfplay)
    app.task(name=task_name(Kind.EVAL), max_retries=3, default_retry_delay=5)(evaluate)


def _connect_signals(app: Celery) -> None:
    """The hooks of the worker's life; weak=False because nobody else holds these functions."""
    shared: Shared = app.azq

    def init(sender: Any, **_: Any) -> None:
        shared.board = Board(sender.concurrency or 1)

    def ready(sender: Any, **_: Any) -> None:
        queues = sorted(app.amqp.queues.consume_from)
        slots = sender.controller.concurrency or 1
        shared.heart = Heart(shared.open_control, shared.config.worker, shared.board or Board(slots), queues, shared.tags, slots)
        shared.heart.loop_turned_s = time.monotonic()
        shared.heart.start()
        if shared.board is not None:
            shared.care = Care(shared.board, shared.open_ledger, max_attempts=shared.config.daemon.max_attempts)
            shared.care.start()

    def shutting_down(**_: Any) -> None:
        if shared.board is not None:
            shared.board.stop()
        notify(STOPPING, "STATUS=giving work back")
        end_for_sure(STOP_AFTER_S)

    def shutdown(**_: Any) -> None:
        if shared.care is not None:
            shared.care.end()
        if shared.heart is not None:
            shared.heart.end()

    def child(**_: Any) -> None:
        logs.setup("job")
        forget_environment()  # games in Python run in this process
        shared.signs.start()

    signals.worker_init.connect(init, weak=False)
    signals.worker_ready.connect(ready, weak=False)
    signals.worker_shutting_down.connect(shutting_down, weak=False)
    signals.worker_shutdown.connect(shutdown, weak=False)
    signals.worker_process_init.connect(child, weak=False)
