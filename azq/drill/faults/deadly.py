"""Runs, games and requests that kill whoever has to do with them, beside others that must not suffer."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.drill.deadly_games import ARMED, Stillborn
from azq.drill.scenarios import Harm, Scenario, fault
from azq.drill.system import RUN, System
from azq.errors import NotFound, StateConflict
from azq.inference.serve.requests import name_of
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.nets import NetSpec
from azq.process.kin import Kin
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import EvalReply, EvalRequest

BAD_RUN = "stillborn"
DIES_S = 120.0
KILLED = "killed its worker"  # in the reason for which a game is set aside
CLIENT = "drill-killer"
CATCH_S = 90.0
SEND_AGAIN_S = 4.0
DEATHS = 2  # after which a request has to be refused
REFUSED = "killed their inference worker"


@fault("bad-run", "inference")
def bad_run(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A second run whose game kills the process that loads it; healed once no inference worker tries any more and games go on."""
    path, _, _ = system.game.rpartition(":")
    log = system.log("inference")
    with system.client() as client:
        ledger = Ledger(client)
        record = ledger.run(RUN).record
        sections = msgspec.json.decode(record.sections)
        sections["run"]["game"] = f"{path}:{Stillborn.__name__}"
        bad = msgspec.structs.replace(
            record, run=BAD_RUN, sections=msgspec.json.encode(sections), directory=str(system.folder / BAD_RUN),
            created_ms=now_ms(),
        )  # fmt: skip
        if BAD_RUN in {view.record.run for view in ledger.runs()}:
            ledger.update_run(bad)
            ledger.set_run_state(BAD_RUN, RunState.RUNNING)
        else:
            ledger.create_run(bad)

    def lift() -> None:
        with system.client() as client:
            ledger = Ledger(client)
            if ledger.run(BAD_RUN).state is RunState.RUNNING:
                ledger.set_run_state(BAD_RUN, RunState.FINISHED, "the drill is over")

    return Harm(lambda: log.says("run_not_served", BAD_RUN) and system.pid("inference") is not None, lift=lift)


@fault("deadly-game", "selfplay")
def deadly_game(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Arms the game: from now on one of those in play kills its worker; healed once it was set aside."""
    before, log = len(_set_aside(system)), system.log("selfplay")
    (Path(system.game.rpartition(":")[0]).parent / ARMED).touch()
    system.until(lambda: log.says("pool_child_died"), "a game that kills", DIES_S)
    return Harm(lambda: len(_set_aside(system)) > before)


def _set_aside(system: System) -> set[bytes]:
    with system.client() as client:
        found: dict[bytes, bytes] = client.hgetall(keys.abandoned(RUN))  # type: ignore[assignment]
    wrong = [reason.decode() for reason in found.values() if KILLED not in reason.decode()]
    if wrong:
        raise StateConflict(f"a game was abandoned for another reason than that it {KILLED}: {wrong[0]}")
    return set(found)


@fault("deadly-request", "inference")
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
            if death := _caught(system.kin, client, note):
                return death
    return 0


def _caught(kin: Kin, client: redis.Redis, note: str) -> int:
    found = _noted(client, note)
    if pid := int(found.rpartition(b":")[2] or 0):
        with contextlib.suppress(NotFound):  # it died of something else
            if kin.killed_if(kin.victim(pid, "inference"), lambda: _noted(client, note) == found):
                return int(found.partition(b" ")[0])
    return 0


def _noted(client: redis.Redis, note: str) -> bytes:
    found: Any = client.get(note)
    return bytes(found or b"")


def _refused(system: System) -> bool:
    with system.client("data") as client:
        frames: list[bytes] = client.lrange(keys.reply(CLIENT), 0, -1)  # type: ignore[assignment]
    return any(REFUSED in decode(frame, EvalReply).error for frame in frames)
