"""Runs, games and requests that kill whoever has to do with them, tabs that die, and networks that tabs must not play with."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.errors import NotFound, StateConflict
from azq.host.browser import chromium
from azq.inference.serve.requests import name_of
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.nets import NetSpec
from azq.parts.lab.drill.deadly_games import ARMED, Stillborn
from azq.parts.lab.drill.scenarios import GATEWAY, PAGE, TAB, Harm, Scenario, fault
from azq.parts.lab.drill.system import READY_S, RUN, System
from azq.parts.volunteers.models import ModelCatalog
from azq.process.kin import Kin
from azq.store import Store, open_store
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import EvalReply, EvalRequest, ModelEvent, WeightEvent

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


HASH = "is not there under its name"  # ways in which a network is broken
FLIPPED = "has flipped bytes"
ANSWERS = "answers otherwise than its weights"
FLIPS = 64  # bytes
NOTHINGS = "0" * 64  # a hash
ONE = b"\0\0\x80\x3f"  # as float32


@fault("kill-tab", TAB)
def kill_tab(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL to a browser's tab in mid-game; another one comes in its place, and is somebody else."""
    system.working(GATEWAY)
    system.tabs[0].kill()
    system.tabs.pop(0).wait()
    system.open_tab()
    return Harm(lambda: system.pid(GATEWAY) is not None)


@fault("broken-network", PAGE)
def break_network(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Good weights whose networks for tabs are broken in one way after the other: a page refuses each, says so and plays on.

    Healed once it plays with the next good one. Raises `StateConflict` where it played with another.
    """
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(_page(system))
        system.until(lambda: _games(system) > 0, "games of a tab", READY_S)
        refused = {_refusal(system, page, way) for way in (HASH, FLIPPED, ANSWERS)}
        good, over = offer_network(system), stack.pop_all()

    def healed() -> bool:
        played = _games(system) and system.evidence.by_tabs().keys()
        if played and played & refused:
            raise StateConflict(f"a tab played with networks that it had to refuse: versions {sorted(played & refused)}")
        return bool(played and good in played)

    return Harm(healed, lift=over.close)


def _refusal(system: System, page: Any, way: str) -> int:
    """Offers a broken network until the page has said that it does not use it, and has played on; returns its version."""
    version, before = offer_network(system, way), _games(system)
    system.until(lambda: f"weights {version} are not" in page.inner_text("#problem"), f"a page's word of a network that {way}", READY_S)
    system.until(lambda: _games(system) > before, f"games beside a network that {way}", READY_S)
    return version


@contextlib.contextmanager
def _page(system: System) -> Iterator[Any]:
    """A page that contributes."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"http://{system.gateway}/")
        page.click("#go")
        yield page


def _games(system: System) -> int:
    """How many games of tabs are on disk, each once for each version that it was played with."""
    system.evidence.read()
    return system.evidence.by_tabs().total()


def offer_network(system: System, way: str = "") -> int:
    """Publishes the newest weights once more, with their network for tabs broken in some way; returns the version."""
    with system.client() as client:
        bus = RedisBus(client)
        store = open_store(system.config().store, directory=system.folder / RUN / "weights", client=client)
        weights = decode(bus.newest(keys.weights(RUN))[0].frame, WeightEvent)
        version = weights.version + 1
        bus.publish(keys.onnx(RUN), encode(broken(store, ModelCatalog(bus, RUN).all()[-1], version, way)))
        bus.publish(keys.weights(RUN), encode(msgspec.structs.replace(weights, version=version, published_ms=now_ms())))
    return version


def broken(store: Store, good: ModelEvent, version: int, way: str) -> ModelEvent:
    """A network like a good one, but for what is wrong with it."""
    data = bytearray(store.get(good.uri, good.sha256))
    middle = len(data) // 2
    data[middle : middle + FLIPS] = bytes(byte ^ 0xFF for byte in data[middle : middle + FLIPS])
    sha256, uri = store.put(bytes(data)) if way in (HASH, FLIPPED) else (good.sha256, good.uri)
    values = bytes(len(good.values) - 4) + ONE if way == ANSWERS else good.values
    return msgspec.structs.replace(good, version=version, sha256=NOTHINGS if way == HASH else sha256, uri=uri, values=values)
