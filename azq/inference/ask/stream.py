"""The way to the inference workers: over one data broker, or over several, of which each client has its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from azq import logs
from azq.bus.base import AskingBus
from azq.bus.redis import RedisBus
from azq.bus.same_host import HostFirstBus
from azq.bus.sharded import TIMEOUT_S
from azq.config import BrokerConfig, RunSections
from azq.errors import BrokerError
from azq.games import Game
from azq.inference.ask.client import StreamEvaluator
from azq.phases import Phases
from azq.search.evaluator import Evaluation, Evaluator
from azq.wire import keys
from azq.wire.acl import user_in
from azq.wire.connect import CONNECT_TIMEOUT_S, connect
from azq.wire.messages import LATEST
from azq.wire.shards import client_shards, on_shard

MOVE_AFTER_S = 1.0  # of a broker's absence; one that restarts is back sooner
MUTE_AFTER_S = 10.0  # without any answer over a broker that is there: the inference workers may be cut off from it
LOOK_S = 0.25  # between two looks whether the broker is lost, while an answer is waited for


class FailoverEvaluator:
    """Asks over the first broker of `order` that answers; once that is lost, or no answers come over it, all is asked again over the next.

    `connect` opens the stream of a broker (its place in the list) and raises `BrokerError` where it does not answer. Evaluation is pure,
    so an answer of the broker before is as good as one of the next. Used by one thread. With all brokers away it waits like one stream.
    Raises `BrokerError` where none answers at the start.
    """

    def __init__(
        self, connect: Callable[[int], StreamEvaluator], order: Sequence[int], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._order = tuple(order)
        self._clock_s = clock_s
        self._where: dict[int, tuple[StreamEvaluator, int]] = {}  # handle -> stream and its own handle
        self._next = 0
        self._lost_s: float | None = None  # since when the stream in use is lost
        self._heard_s = clock_s()  # when the stream in use answered last, or had nothing to answer
        self._moved_resent = 0
        self._left: set[StreamEvaluator] = set()  # may hold answers that were not taken yet
        self.place, self._stream = self._open(self._order)  # the broker in use

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        if not self._where:
            self._heard_s = self._clock_s()
        self._next += 1
        self._where[self._next] = self._stream, self._stream.submit(packed, legal=legal, weight_version=weight_version)
        return self._next

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        """The evaluation, or None if it is not there after `timeout_s`; moves to the next broker where the one in use is lost.

        Raises EvaluatorFailure when an inference worker answered with a named failure, KeyError for an unknown handle.
        """
        deadline_s = self._clock_s() + timeout_s
        while True:
            stream, number = self._where[handle]
            left_s = deadline_s - self._clock_s()
            try:
                answer = stream.result(number, timeout_s=max(0.0, min(LOOK_S, left_s)))
            except Exception:
                del self._where[handle]
                raise
            if answer is not None:
                del self._where[handle]
                self._heard_s = self._clock_s()
                return answer
            self._watch()
            if left_s <= LOOK_S:
                return None

    @property
    def resent(self) -> int:
        """Requests that were sent again, over whichever broker, by moving too."""
        return self._moved_resent + self._stream.resent

    def close(self) -> None:
        for stream in {*self._left, self._stream}:
            stream.close()
        self._left.clear()

    def _watch(self) -> None:
        now_s = self._clock_s()
        if not self._stream.lost:
            self._lost_s = None
            if now_s - self._heard_s >= MUTE_AFTER_S:
                self._move()
        elif self._lost_s is None:
            self._lost_s = now_s
        elif now_s - self._lost_s >= MOVE_AFTER_S:
            self._move()

    def _move(self) -> None:
        self._lost_s, self._heard_s = None, self._clock_s()  # without an answer the next look is as far away as the first
        start = self._order.index(self.place) + 1
        try:
            place, stream = self._open((*self._order[start:], *self._order[: start - 1]))
        except BrokerError:
            return
        logs.get(__name__).warning("evaluation_moved", lost=self.place, now=place, again=len(self._stream.unanswered()))
        self._moved_resent += self._stream.resent
        self._left.add(self._stream)
        old, self.place, self._stream = self._stream, place, stream
        waiting = old.unanswered()
        for handle, (holder, number) in self._where.items():
            if holder is old and number in waiting:
                request = waiting[number]
                packed, legal = (np.frombuffer(rows, np.uint8).reshape(request.count, -1) for rows in (request.packed, request.legal))
                again = stream.submit(packed, legal=legal, weight_version=request.weight_version, sends=request.sends)
                self._where[handle] = stream, again
                old.forget(number)
                self._moved_resent += 1

    def _open(self, places: Sequence[int]) -> tuple[int, StreamEvaluator]:
        refused: BrokerError | None = None
        for place in places:
            try:
                return place, self._connect(place)
            except BrokerError as error:
                refused = refused or error
        raise refused or BrokerError("no data plane to ask; set broker.data_urls")


def open_stream(
    broker: BrokerConfig,
    run: str,
    sections: RunSections,
    game: Game,
    who: str,
    phases: Phases | None = None,
    host: Path | None = None,
) -> Evaluator:
    """An evaluator over the request stream, for one thread; another broker is asked when the client's own is lost.

    `who` is no other client's name. With `host`, the home folder of inference workers of this host, those are asked directly while there
    are any. Raises `BrokerError` where no data broker answers.
    """
    urls = broker.data_planes
    client = f"{user_in(urls[0])}:{who}"  # its replies lie below its user's name, as the rights of roles ask

    def over(place: int, name: str) -> StreamEvaluator:
        alone = len(urls) == 1  # else a socket that is silent for long is a broker to leave
        timeout_s = CONNECT_TIMEOUT_S if alone else TIMEOUT_S
        bus: AskingBus = RedisBus(connect(urls[place], timeout_s=timeout_s, blocking=alone))
        if host is not None:
            bus = HostFirstBus(bus, keys.eval_stream(run), keys.reply(name), host)
        actions, values = game.num_distinct_actions(), game.value_size()
        spent = phases or Phases()
        return StreamEvaluator(bus, run, name, num_actions=actions, value_size=values, phases=spent)

    if len(urls) == 1:
        return over(0, client)
    order = client_shards(run, client, len(urls), broker.shards_per_run)
    return FailoverEvaluator(lambda place: over(place, on_shard(client, place)), order)
