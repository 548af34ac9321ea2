"""A request that kills whoever evaluates it: the drill itself kills the inference worker that is just at it."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.inference.serve.requests import name_of
from azq.nets import NetSpec
from azq.process.proc import alive
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import EvalReply, EvalRequest

CLIENT = "drill-killer"
CATCH_S = 90.0
SEND_AGAIN_S = 4.0
SETTLE_S = 0.02
DEATHS = 2  # after which it has to be refused
REFUSED = "killed their inference worker"


def deadly_request(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Sends leaves that nobody else asks for, kills the worker at them twice, and wants them refused by name."""
    leaves = rng.randbytes(NetSpec.of(games.load(system.game)).packed_size)
    request = EvalRequest(rng.getrandbits(31), CLIENT, 0, 1, leaves, 0, sends=2)  # sent again, so whoever has it looks out
    note = keys.trial(RUN, name_of(leaves))  # by its leaves: sent again, it is the same
    with system.client("data") as client:
        client.delete(keys.reply(CLIENT))
    system.until(
        lambda: _kill_at(system, request, note) == DEATHS, f"{DEATHS} workers at the drill's request, one after the other", CATCH_S
    )
    _send(system, request)
    return Harm(lambda: _refused(system) and system.pid("inference") is not None)


def _send(system: System, request: EvalRequest) -> None:
    with system.client("data") as client:
        RedisBus(client).publish(keys.eval_stream(RUN), encode(request))


def _kill_at(system: System, request: EvalRequest, note: str) -> int:
    """Kills the worker that wrote this note and is still at it; returns which death that was, 0 where nobody was caught.

    A note lasts milliseconds, so this looks without a pause. A worker that got away struck all notes out, and it begins anew.
    """
    _send(system, request)
    deadline = time.monotonic() + SEND_AGAIN_S
    with system.client() as client:
        while time.monotonic() < deadline:
            found = _noted(client, note)
            pid = int(found.rpartition(b":")[2] or 0)
            if not pid or not alive(pid):
                continue
            os.kill(pid, signal.SIGSTOP)
            time.sleep(SETTLE_S)  # what it sent before is done by then
            if _noted(client, note) == found:
                os.kill(pid, signal.SIGKILL)
                return int(found.partition(b" ")[0])
            os.kill(pid, signal.SIGCONT)
    return 0


def _noted(client: redis.Redis, note: str) -> bytes:
    found: Any = client.get(note)
    return bytes(found or b"")


def _refused(system: System) -> bool:
    with system.client("data") as client:
        frames: list[bytes] = client.lrange(keys.reply(CLIENT), 0, -1)  # type: ignore[assignment]
    return any(REFUSED in decode(frame, EvalReply).error for frame in frames)
