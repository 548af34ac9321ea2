"""Evaluation requests: from a frame to checked leaves, from outputs to replies. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.bus.base import Entry
from azq.errors import WireError
from azq.inference.forward import Outputs
from azq.nets import NetSpec
from azq.wire import codec, keys
from azq.wire.messages import EvalReply, EvalRequest

MAX_CLIENT_NAME = 200


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that waits for its batch."""

    run: str
    entry: Entry
    request: EvalRequest
    packed: NDArray[np.uint8]  # (L, P), a view of the frame
    arrived_s: float

    @property
    def group(self) -> tuple[str, int]:
        """Requests of one group are evaluated together."""
        return self.run, self.request.weight_version


class BadRequest(WireError):
    """A request that decodes and cannot be answered; the client can be told why."""

    def __init__(self, request: EvalRequest, reason: str) -> None:
        super().__init__(reason)
        self.request = request


def read_request(run: str, entry: Entry, spec: NetSpec, max_batch: int, now_s: float) -> Pending:
    """Checks a frame against a run's shapes.

    Raises WireError when nobody can be answered, BadRequest when the client can.
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
    packed = np.frombuffer(request.packed, np.uint8).reshape(request.count, spec.packed_size)
    return Pending(run, entry, request, packed, now_s)


def reply(pending: Pending, weight_version: int, outputs: Outputs, start: int) -> tuple[str, bytes]:
    """Reply list and frame for one request whose leaves begin at `start` of a batch."""
    end = start + pending.request.count
    logits, values = outputs[0][start:end], outputs[1][start:end]
    message = EvalReply(pending.request.request_id, weight_version, pending.request.count, logits.tobytes(), values.tobytes())
    return keys.reply(pending.request.client), codec.encode(message)


def refusal(request: EvalRequest, reason: str) -> tuple[str, bytes]:
    """Reply list and frame that tell a client why its request is not answered."""
    message = EvalReply(request.request_id, request.weight_version, 0, b"", b"", reason)
    return keys.reply(request.client), codec.encode(message)
