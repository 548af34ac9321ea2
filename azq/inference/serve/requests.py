"""Evaluation requests: from a frame to checked leaves, which are evaluated together and when, from outputs to replies. No clock, no I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from azq.bus.base import Entry
from azq.errors import WireError
from azq.inference.device.forward import Outputs
from azq.inference.device.tuning import BatchLimits
from azq.nets import NetSpec
from azq.wire import codec, keys
from azq.wire.arrays import legal_bytes, wanted_places
from azq.wire.codec import answer_bytes, most_leaves
from azq.wire.messages import EvalReply, EvalRequest

MAX_CLIENT_NAME = 200


EntryKey = tuple[str, str]  # a stream and an id in it


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A request that waits for its batch."""

    run: str
    entry: Entry
    request: EvalRequest
    packed: NDArray[np.uint8]  # (L, P), a view of the frame
    arrived_s: float
    suspect: bool = False  # the worker that had it before may have died of it

    @property
    def count(self) -> int:
        return self.request.count

    @property
    def key(self) -> EntryKey:
        return key_of(self.entry)

    @property
    def what(self) -> str:
        """Names it by its leaves."""
        return name_of(self.request.packed)


def key_of(entry: Entry) -> EntryKey:
    return entry.stream, entry.id


def name_of(packed: bytes) -> str:
    """What leaves are called in notes about them, under whichever id and from whomever they come."""
    return blake2b(packed, digest_size=16).hexdigest()


class BadRequest(WireError):
    """A request that decodes and cannot be answered; the client gets the reason, and whether others would answer (`final`: none)."""

    def __init__(self, request: EvalRequest, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.request = request
        self.final = final


def read_request(run: str, entry: Entry, spec: NetSpec, max_batch: int, now_s: float, *, claimed: bool = False) -> Pending:
    """Checks a frame against a run's shapes; one that was claimed from another worker, or sent before, is suspect.

    Raises WireError where no client can be answered, BadRequest where one can.
    """
    request = codec.decode(entry.frame, EvalRequest)
    if not 0 < len(request.client) <= MAX_CLIENT_NAME:
        raise WireError(f"request {request.request_id} names no client")
    if request.count < 1 or len(request.packed) != request.count * spec.packed_size:
        expected = f"{request.count} leaves of {spec.packed_size} bytes"
        raise BadRequest(request, f"request holds {len(request.packed)} bytes, not {expected}; do all hosts play run {run} with one azq?")
    if request.count > max_batch:
        remedy = "raise inference.max_batch or lower selfplay.games_in_flight"
        raise BadRequest(request, f"request of {request.count} leaves exceeds inference.max_batch = {max_batch}; {remedy}")
    if request.count > (most := most_leaves(spec.packed_size, spec.num_actions, spec.value_size)):
        size = answer_bytes(request.count, spec.num_actions, spec.value_size)
        reason = f"the answer to {request.count} leaves of {spec.num_actions} actions has {size} bytes, a message {codec.MAX_FRAME_BYTES}"
        raise BadRequest(request, f"{reason}; lower selfplay.games_in_flight: a request holds {most} such leaves", final=True)
    if len(request.legal) not in (0, request.count * legal_bytes(spec.num_actions)):
        raise BadRequest(request, f"request holds {len(request.legal)} bytes of legal actions, not {spec.num_actions} bits a leaf")
    packed = np.frombuffer(request.packed, np.uint8).reshape(request.count, spec.packed_size)
    return Pending(run, entry, request, packed, now_s, claimed or request.sends > 1)


def replies(members: Sequence[Pending], weight_version: int, outputs: Outputs) -> list[tuple[str, bytes]]:
    """What to tell the clients of a batch, whose leaves lie one after the other."""
    ends = accumulate(pending.count for pending in members)
    return [reply(pending, weight_version, outputs, end - pending.count) for pending, end in zip(members, ends, strict=True)]


def reply(pending: Pending, weight_version: int, outputs: Outputs, start: int) -> tuple[str, bytes]:
    """Reply list and frame for one request whose leaves begin at `start` of a batch; `read_request` saw that they fit one."""
    request, end = pending.request, start + pending.count
    logits, values = outputs[0][start:end], outputs[1][start:end]
    if request.legal:
        logits = logits.reshape(-1)[wanted_places(request.legal, *logits.shape)]
    message = EvalReply(request.request_id, weight_version, request.count, logits.tobytes(), values.tobytes())
    return keys.reply(request.client), codec.encode(message)


def refusal(request: EvalRequest, reason: str, *, final: bool = False) -> tuple[str, bytes]:
    """Reply list and frame that tell a client why its request is not answered, and whether it may ask again."""
    message = EvalReply(request.request_id, request.weight_version, 0, b"", b"", reason, final)
    return keys.reply(request.client), codec.encode(message)


class Group(NamedTuple):
    """What may be evaluated together: requests of a run that share weights, and of suspects each alone."""

    run: str
    weight_version: int
    suspect: EntryKey | None = None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What to do now: evaluate `members` of a group, oldest first, or wait at most `wait_s` for more."""

    group: Group | None
    members: tuple[Pending, ...]
    wait_s: float  # 0 with members; infinite for an empty queue


def plan(groups: Mapping[Group, Sequence[Pending]], now_s: float, *, max_batch: int, limits: Callable[[Group], BatchLimits]) -> BatchPlan:
    """The next batch of a queue, each group in order of arrival.

    A group may go once it holds `enough` leaves of its limits, once its next request would exceed `max_batch`, or once its
    oldest request is as old as its deadline. Of the groups that may go, the one whose oldest request waits longest goes first.
    """
    ready: list[tuple[float, Group, tuple[Pending, ...]]] = []
    wait_s = float("inf")
    for group, queue in groups.items():
        enough, deadline_s = limits(group)
        ends = list(accumulate(pending.count for pending in queue))
        members = tuple(queue[: max(1, bisect_right(ends, max_batch))])
        age_s = now_s - queue[0].arrived_s
        if ends[len(members) - 1] >= enough or len(members) < len(queue) or age_s >= deadline_s:
            ready.append((queue[0].arrived_s, group, members))
        else:
            wait_s = min(wait_s, deadline_s - age_s)
    if not ready:
        return BatchPlan(None, (), wait_s)
    _, group, members = min(ready, key=itemgetter(0))
    return BatchPlan(group, members, 0.0)
