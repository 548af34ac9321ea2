"""Asks one live process for its log or its threads, over the control plane, wherever it runs."""

from __future__ import annotations

import uuid

from azq.bus.base import Bus
from azq.errors import HostError, NotFound
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.questions import ProcessAnswer, ProcessQuestion, Topic

WITHIN_S = 5.0


def ask(bus: Bus, worker: str, topic: Topic, *, lines: int = 0, within_s: float | None = None) -> list[str]:
    """What the process answers, as lines. Raises `NotFound` where no heartbeat of it lives, `HostError` where it stays silent."""
    if bus.get_each([keys.beat(worker)]) == [None]:
        raise NotFound(f"no process {worker!r} lives; `azq workers` lists those that do")
    within_s = WITHIN_S if within_s is None else within_s
    question = ProcessQuestion(uuid.uuid4().hex, topic, lines)
    bus.reply([(keys.question(worker), encode(question))], life_s=max(1, round(within_s)))
    for frame in bus.take_replies(keys.answer(question.id), timeout_s=within_s, count=1):
        return list(decode(frame, ProcessAnswer).lines)
    raise HostError(
        f"{worker} did not answer within {within_s:g} s: it is stopped, computes without giving up the interpreter's lock, lost its "
        "broker, or is of an older azq; look at its log on its host"
    )
