"""The evaluator behind the request stream: what self-play and the arena use on any host."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from azq import logs
from azq.bus.base import AskingBus
from azq.bus.same_host import PeerLost
from azq.clock import now_ms
from azq.errors import BrokerError, EvaluationRefused, EvaluatorFailure, WireError
from azq.phases import Phases
from azq.search.evaluator import Evaluation
from azq.waiting import Backoff
from azq.wire import codec, keys
from azq.wire.arrays import wanted_places
from azq.wire.messages import LATEST, EvalReply, EvalRequest

STREAM_FUSE = 10_000  # entries; far above all clients' credits together
REPLIES_PER_READ = 16
SHORTEST_PATIENCE_S = 1.0
SHARE_WORTH_SAYING = 0.5  # of actions that are legal, below which logits of those alone are asked for
LATENCIES = 20.0  # a request that takes so many times the usual is taken for lost
BACKOFF = Backoff(0.1, 2.0)
MOVE_AFTER_S = 1.0  # of a broker's absence; one that restarts is back sooner
MUTE_AFTER_S = 10.0  # without any answer over a broker that is there: the inference workers may be cut off from it
LOOK_S = 0.25  # between two looks whether the broker is to be left, while an answer is waited for

Elsewhere = Callable[[], tuple[AskingBus, str]]  # the next broker that answers, and a client's name there; raises BrokerError


@dataclass(slots=True)
class Outstanding:
    """A request without its answer."""

    request: EvalRequest
    frame: bytes
    wanted: NDArray[np.intp] | None  # places of the logits that are asked for; None: all
    sent_s: float | None = None  # None: not sent yet, or to be sent again
    sends: int = 0


@dataclass(eq=False)
class StreamEvaluator:
    """Sends leaves to the inference workers and collects their evaluations; used by one thread.

    At most `max_in_flight` requests are on their way (credits); further ones wait here, so that the stream stays bounded.
    A request unanswered for many times the usual, at most `resend_after_s`, is sent again under its id: evaluation is pure,
    so only the first answer counts.
    A broker that is away is waited for; `result` returns None meanwhile. Once it is lost, or no answers come over it, all requests are
    sent again over the one that `elsewhere` gives.
    """

    bus: AskingBus
    run: str
    client: str
    _: KW_ONLY
    num_actions: int
    value_size: int = 1
    max_in_flight: int = 8
    resend_after_s: float = 5.0
    clock_s: Callable[[], float] = time.monotonic
    phases: Phases = field(default_factory=Phases)
    elsewhere: Elsewhere | None = None
    resent: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._stream, self._replies = keys.eval_stream(self.run), keys.reply(self.client)
        self._outstanding: dict[int, Outstanding] = {}
        self._unsent: deque[int] = deque()
        self._answers: dict[int, Evaluation | EvaluatorFailure] = {}
        self._next_id = time.time_ns() >> 10  # a client of the same name that died may have left replies behind
        self._pause = threading.Event()  # never set: a wait on it is a back-off
        self._failures = 0  # calls in a row that found no broker
        self._lost_s = 0.0  # since when
        self._heard_s = self.clock_s()  # when it answered last, or had nothing to answer
        self._latency_s = 0.0  # of an answer, as the last ones took

    def submit(self, packed: NDArray[np.uint8], *, legal: NDArray[np.uint8] | None = None, weight_version: int = LATEST) -> int:
        """Sends (L, P) observations, or keeps them until a credit is free or the broker is back; never blocks on either."""
        if not self._outstanding:
            self._heard_s = self.clock_s()
        self._next_id += 1
        sent_ms = now_ms()
        with self.phases("encode"):
            legal_bits, wanted = (b"", None) if legal is None or not legal.size else self._wanted(legal)
            request = EvalRequest(self._next_id, self.client, weight_version, len(packed), packed.tobytes(), sent_ms, 1, legal_bits)
            frame = codec.encode(request)  # too large is the caller's mistake, said here
        self._outstanding[request.request_id] = Outstanding(request, frame, wanted)
        self._unsent.append(request.request_id)
        if not self.lost:
            with self.phases("transport"):
                self._try(self._send_unsent)
        return request.request_id

    def result(self, handle: int, *, timeout_s: float) -> Evaluation | None:
        """The evaluation, or None if it is not there after `timeout_s`; sends again what waits too long.

        Raises EvaluatorFailure when an inference worker answered with a named failure, EvaluationRefused where asking again is of no use,
        KeyError for an unknown handle.
        """
        if handle not in self._answers and handle not in self._outstanding:
            raise KeyError(handle)
        deadline_s, left_s = self.clock_s() + timeout_s, timeout_s
        while handle not in self._answers and left_s >= 0.0:
            self._pump(min(LOOK_S, left_s))
            self._leave_where_due()
            left_s = deadline_s - self.clock_s()
        if handle not in self._answers:
            return None
        answer = self._answers.pop(handle)
        if isinstance(answer, EvaluatorFailure):
            raise answer
        return answer

    def _wanted(self, legal: NDArray[np.uint8]) -> tuple[bytes, NDArray[np.intp] | None]:
        """What a request says of legal actions, and where they are; nothing where most are, for then all logits are hardly longer."""
        legal_bits = legal.tobytes()
        places = wanted_places(legal_bits, len(legal), self.num_actions)
        return (legal_bits, places) if len(places) < SHARE_WORTH_SAYING * len(legal) * self.num_actions else (b"", None)

    def close(self) -> None:
        """Deletes the reply list and closes the bus; requests on their way are answered into nothing."""
        self._outstanding.clear()
        self._unsent.clear()
        if not self.lost:  # else the list dies by itself
            self._try(lambda: self.bus.delete(self._replies))
        self.bus.close()

    @property
    def lost(self) -> bool:
        """Whether the last call found no broker."""
        return self._failures > 0

    @property
    def in_flight(self) -> int:
        return sum(waiting.sent_s is not None for waiting in self._outstanding.values())

    def _leave_where_due(self) -> None:
        """Goes on over another broker where this one is lost, or gives no answers; evaluation is pure, so any answer is as good."""
        if self.elsewhere is None:
            return
        now_s = self.clock_s()
        if now_s < (self._lost_s + MOVE_AFTER_S if self.lost else self._heard_s + MUTE_AFTER_S):
            return
        self._lost_s = self._heard_s = now_s  # without another broker the next look is as far away as the first
        try:
            bus, client = self.elsewhere()
        except BrokerError:
            return
        logs.get(__name__).warning("evaluation_moved", lost=self.client, now=client, again=len(self._outstanding))
        self.bus.close()
        self.bus, self.client, self._replies, self._failures = bus, client, keys.reply(client), 0
        self._ask_again()
        self._try(self._send_unsent)

    def _ask_again(self) -> None:
        """Puts what was sent back among the unsent: its receiver is gone."""
        for number, waiting in self._outstanding.items():
            if waiting.sent_s is not None:
                waiting.sent_s = None
                self._unsent.append(number)

    def _pump(self, timeout_s: float) -> None:
        """Sends what is due and takes replies, for at most `timeout_s` and no longer than until the next re-send."""
        if self.lost:
            self._pause.wait(min(BACKOFF.pause_s(self._failures), timeout_s))
        wait_s = max(0.0, min(timeout_s, self._mark_overdue()))
        self._try(lambda: self._exchange(wait_s))

    def _exchange(self, wait_s: float) -> None:
        with self.phases("transport"):
            self._send_unsent()
        with self.phases("wait"):
            frames = self.bus.take_replies(self._replies, timeout_s=wait_s, count=REPLIES_PER_READ)
        with self.phases("encode"):
            for frame in frames:
                self._take(frame)

    def _mark_overdue(self) -> float:
        """Puts overdue requests back among the unsent; returns seconds until the next one is overdue."""
        now_s = self.clock_s()
        next_s = self.resend_after_s
        for number, waiting in self._outstanding.items():
            if waiting.sent_s is None:
                continue
            left_s = waiting.sent_s + self._patience_s(waiting) - now_s
            if left_s <= 0.0:
                waiting.sent_s = None
                self._unsent.append(number)
            else:
                next_s = min(next_s, left_s)
        return next_s

    def _patience_s(self, waiting: Outstanding) -> float:
        """Seconds until a request is sent again: many times what answers take, longer each time, at most `resend_after_s`."""
        if self._latency_s == 0.0:
            return self.resend_after_s
        usual_s = max(SHORTEST_PATIENCE_S, LATENCIES * self._latency_s)
        return min(self.resend_after_s, math.ldexp(usual_s, waiting.sends - 1))

    def _send_unsent(self) -> None:
        credits = self.max_in_flight - self.in_flight
        while self._unsent and credits > 0:
            waiting = self._outstanding.get(self._unsent[0])
            if waiting is not None:
                if waiting.sends or waiting.request.client != self.client:
                    waiting.request = msgspec.structs.replace(waiting.request, client=self.client, sends=waiting.sends + 1)
                    waiting.frame = codec.encode(waiting.request)
                self.bus.post(self._stream, waiting.frame, max_length=STREAM_FUSE)
                waiting.sent_s = self.clock_s()
                waiting.sends += 1
                self.resent += waiting.sends > 1
                credits -= 1
            self._unsent.popleft()

    def _take(self, frame: bytes) -> None:
        try:
            message = codec.decode(frame, EvalReply)
            waiting = self._outstanding.get(message.request_id)
            if waiting is None:
                return  # of a request that another reply answered
            answer = _failure_in(message) or self._read(message, waiting)
        except WireError as error:
            logs.get(__name__).warning("reply_unreadable", client=self.client, error=str(error))
            return
        del self._outstanding[message.request_id]
        self._answers[message.request_id] = answer
        self._heard_s = self.clock_s()
        if waiting.sent_s is not None:
            self._latency_s += 0.1 * (self._heard_s - waiting.sent_s - self._latency_s)

    def _read(self, message: EvalReply, waiting: Outstanding) -> Evaluation:
        count, places = waiting.request.count, waiting.wanted
        every = count * self.num_actions
        shapes = 2 * (every if places is None else len(places)), 2 * count * self.value_size
        if message.count != count or (len(message.logits), len(message.values)) != shapes:
            raise WireError(f"reply {message.request_id} holds {message.count} evaluations of other shapes than the {count} asked for")
        logits, values = np.frombuffer(message.logits, np.float16), np.frombuffer(message.values, np.float16)
        if places is not None:
            wanted, logits = logits, np.zeros(every, np.float16)
            logits[places] = wanted
        return Evaluation(logits.reshape(count, self.num_actions), values.reshape(count, self.value_size), message.weight_version)

    def _try(self, action: Callable[[], object]) -> None:
        """Runs a step against the broker; an outage starts or lengthens the back-off, success ends it."""
        try:
            action()
        except PeerLost:
            self._ask_again()
        except BrokerError as error:
            if not self.lost:
                logs.get(__name__).warning("evaluation_stream_lost", client=self.client, error=str(error))
                self._lost_s = self.clock_s()
            self._failures += 1
        else:
            self._failures = 0


def _failure_in(message: EvalReply) -> EvaluatorFailure | None:
    if not message.error:
        return None
    return (EvaluationRefused if message.final else EvaluatorFailure)(f"inference worker: {message.error}")
