"""A process answers, in a thread of its own, what the daemon asks it over the control plane: its log, and where its threads are.

The main thread may hang or compute for as long as it likes. Only code that never gives up the interpreter's lock keeps this thread silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from azq import logs
from azq.errors import AccessRefused, BrokerError, WireError
from azq.masking import masked
from azq.process import stacks
from azq.waiting import Backoff
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.questions import ProcessAnswer, ProcessQuestion

WAIT_S = 5.0  # for a question, at a time
LONGEST_LINE = 2000  # characters
BACKOFF = Backoff(1.0, 30.0)

log = logs.get(__name__)


class AnswerBus(Protocol):
    """What answering needs of `azq.bus.base.Bus`."""

    def take_replies(self, key: str, *, timeout_s: float, count: int = 16) -> list[bytes]: ...
    def reply(self, replies: Iterable[tuple[str, bytes]], *, life_s: int = 60) -> None: ...


def no_more() -> list[str]:
    """What a process says that forks none."""
    return []


class Answers(threading.Thread):
    """Waits for questions to `worker` over a bus of this thread's own; `forked` tells where processes are that this one forked."""

    def __init__(self, bus: Callable[[], AnswerBus], worker: str, forked: Callable[[], list[str]] = no_more) -> None:
        super().__init__(name="answers", daemon=True)
        self._make_bus = bus
        self._worker = worker
        self._forked = forked
        self._over = threading.Event()

    def run(self) -> None:
        """Answers until `end`; a broker that is away is waited for."""
        bus: AnswerBus | None = None
        failures = 0
        while not self._over.wait(BACKOFF.pause_s(failures)):
            logs.TAIL.collect()
            try:
                bus = bus or self._make_bus()
                for frame in bus.take_replies(keys.question(self._worker), timeout_s=WAIT_S):
                    self._answer(bus, frame)
                failures = 0
            except AccessRefused as error:
                if not self._over.is_set():
                    log.warning("answers_nothing", reason=str(error), remedy="azq fleet acl --apply gives the role its rights of today")
                return
            except BrokerError:  # the heartbeat says so
                failures += 1

    def __enter__(self) -> Answers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Takes no further question; does not wait for the one at hand."""
        self._over.set()

    def _answer(self, bus: AnswerBus, frame: bytes) -> None:
        try:
            question = decode(frame, ProcessQuestion)
        except WireError as error:
            log.warning("question_not_read", reason=str(error))
            return
        bus.reply([(keys.answer(question.id), encode(ProcessAnswer(self._worker, self._said(question))))])

    def _said(self, question: ProcessQuestion) -> tuple[str, ...]:
        lines = logs.TAIL.newest(question.lines) if question.topic == "log" else [*stacks.own(), *self._forked()]
        return tuple(masked(line[:LONGEST_LINE]) for line in lines)
