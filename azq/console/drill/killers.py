"""A request that kills whoever evaluates it: the drill itself kills the inference worker that is just at it."""

from __future__ import annotations

import os
import random
import signal
import time
from hashlib import blake2b

from azq import games
from azq.bus.redis import RedisBus
from azq.console.drill.harm import Harm
from azq.console.drill.scenarios import Scenario
from azq.console.drill.system import RUN, System
from azq.errors import EvaluationTimeout
from azq.nets import NetSpec
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import EvalReply, EvalRequest

CLIENT = "drill-killer"
CATCH_S = 60.0
DEATHS = 2  # after which it has to be refused
REFUSED = "killed their inference worker"


def deadly_request(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Sends leaves that nobody else asks for, kills the worker at them twice, and wants them refused by name."""
    leaves = rng.randbytes(NetSpec.of(games.load(system.game)).packed_size)
    request = EvalRequest(rng.getrandbits(31), CLIENT, 0, 1, leaves, 0, sends=2)  # sent again, so whoever has it looks out
    note = f"azq:{{{RUN}}}:trial:{blake2b(leaves, digest_size=16).hexdigest()}"
    with system.client("data") as client:
        client.delete(keys.reply(CLIENT))
        RedisBus(client).publish(keys.eval_stream(RUN), encode(request))
    for death in range(1, DEATHS + 1):
        _kill_at(system, note, death)
    return Harm(lambda: _refused(system) and system.pid("inference") is not None)


def _kill_at(system: System, note: str, death: int) -> None:
    """Kills the worker that wrote this note; it lasts milliseconds, so this looks without a pause. One that is answered is an error."""
    deadline = time.monotonic() + CATCH_S
    with system.client() as client:
        while time.monotonic() < deadline:
            found: bytes | None = client.get(note)  # type: ignore[assignment]
            if found is not None and found.startswith(f"{death} ".encode()):
                os.kill(int(found.rpartition(b":")[2]), signal.SIGKILL)
                return
    raise EvaluationTimeout(f"no inference worker was caught at a request of the drill within {CATCH_S:g} s; run the drill again")


def _refused(system: System) -> bool:
    with system.client("data") as client:
        frames: list[bytes] = client.lrange(keys.reply(CLIENT), 0, -1)  # type: ignore[assignment]
    return any(REFUSED in decode(frame, EvalReply).error for frame in frames)
