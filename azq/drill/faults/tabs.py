"""Tabs of volunteers that die, and networks that they must not play with."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import msgspec

from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.drill.scenarios import GATEWAY, PAGE, TAB, Harm, Scenario, fault
from azq.drill.system import READY_S, RUN, System
from azq.errors import StateConflict
from azq.host.browser import chromium
from azq.store import Store, open_store
from azq.volunteers.models import ModelCatalog
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import ModelEvent, WeightEvent

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
