"""The harm that is done: signals to processes, messages that are none, weights that must be refused."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable

from azq import games
from azq.bus.redis import RedisBus
from azq.config import RunSections
from azq.console.drill.scenarios import Scenario
from azq.console.drill.system import LEASE_S, RUN, System, children
from azq.errors import EvaluationTimeout
from azq.ledger import Ledger
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import WeightEvent

FAR = 1000  # versions between the newest weights and forged ones, so that the learner's next have another number
LARGE = 4 << 20  # bytes
SIGNALS = {"kill": signal.SIGKILL, "kill-child": signal.SIGKILL, "stop": signal.SIGSTOP}

Healed = Callable[[], bool]


def harm(system: System, scenario: Scenario, rng: random.Random) -> Healed:
    """Does it once; returns the question whether the harmed part works again."""
    if scenario.fault in SIGNALS:
        return _signal(system, scenario)
    if scenario.fault == "sleep-child":
        return _sleep(system, scenario.role)
    if scenario.fault == "poison":
        return _poison(system, rng)
    return _forge_weights(system, scenario.fault)


def _sleep(system: System, role: str) -> Healed:
    """Stops the processes of a pool for longer than their lease lives; they wake with games that others play by then."""
    parent = system.until(lambda: system.pid(role), f"{role} at work", 60.0)
    asleep = children(parent)
    for pid in asleep:
        os.kill(pid, signal.SIGSTOP)
    wake_s = time.monotonic() + LEASE_S + 2.0

    def healed() -> bool:
        if time.monotonic() < wake_s:
            return False
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return True

    return healed


def _signal(system: System, scenario: Scenario) -> Healed:
    before = system.until(lambda: system.pid(scenario.role), f"{scenario.role} at work", 60.0)
    if scenario.fault == "kill-child":
        own = children(before)
        if not own:
            raise EvaluationTimeout(f"{scenario.role} (pid {before}) has no child process to kill")
        os.kill(own[0], signal.SIGKILL)
        return lambda: bool([pid for pid in children(before) if pid != own[0]])
    os.kill(before, SIGNALS[scenario.fault])
    return lambda: system.pid(scenario.role) not in (before, None)


def _poison(system: System, rng: random.Random) -> Healed:
    """Bytes that decode to nothing, one of them large, for the learner and for the inference workers."""
    dead = _dead_letters(system)
    for plane, stream in (("control", keys.samples(RUN)), ("data", keys.eval_stream(RUN))):
        with system.client(plane) as client:
            bus = RedisBus(client)
            for size in (0, 7, LARGE):
                bus.publish(stream, rng.randbytes(size))
    return lambda: _dead_letters(system) >= dead + 6


def _dead_letters(system: System) -> int:
    total = 0
    for plane in ("control", "data"):
        with system.client(plane) as client:
            total += int(RedisBus(client).get(keys.DEAD_COUNT) or 0)
    return total


def _forge_weights(system: System, fault: str) -> Healed:
    config = system.config()
    with system.client() as client:
        view = Ledger(client).run(RUN)
        sections = RunSections.model_validate_json(view.record.sections)
        store = open_store(config.store.url, directory=system.folder / RUN / "weights", client=client)
        data = _weights(sections, fill=float("nan") if fault == "nan" else 0.5)
        sha256, uri = store.put(data[: len(data) // 2] if fault == "truncated" else data)
        if fault == "wrong-hash":
            sha256 = "0" * len(sha256)
        bus = RedisBus(client)
        version = max(decode(entry.frame, WeightEvent).version for entry in bus.newest(keys.weights(RUN))) + FAR
        bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, version, sha256, uri, 0, int(time.time() * 1000))))
    return lambda: _serves_others(system, version)


def _serves_others(system: System, version: int) -> bool:
    """Inference goes on with weights that are not these."""
    serving = [beat.weight_versions.get(RUN, 0) for beat in system.beats("inference")]
    return bool(serving) and all(found not in (0, version) for found in serving)


def _weights(sections: RunSections, fill: float) -> bytes:
    import torch

    from azq.nets import WeightsMeta, build, to_bytes

    game = games.load(sections.run.game, **sections.run.params)
    module = build(sections.network, game, seed=1)
    with torch.no_grad():
        next(module.parameters()).fill_(fill)
    return to_bytes(module, WeightsMeta(game.name, 0, 0, dict(sections.run.params), sections.network.model_dump(mode="json")))
