"""Messages that are none, or too large, and weights that must be refused."""

from __future__ import annotations

import random
import signal

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import RunSections
from azq.drill.processes import signalled
from azq.drill.scenarios import Harm, Scenario, fault
from azq.drill.system import RUN, System
from azq.ledger import Ledger
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import MAX_FRAME_BYTES, decode, encode
from azq.wire.messages import WeightEvent

FAR = 1000  # versions between the newest weights and forged ones, so that the learner's next have another number
LARGE = 4 << 20  # bytes


@fault("poison", "streams")
def poison(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Bytes that decode to nothing, one of them large, for the learner and for the inference workers."""
    return _to_be_refused(system, _dead_letters(system) + send_poison(system, rng))


def send_poison(system: System, rng: random.Random) -> int:
    """Sends them; returns how many there are."""
    return _publish(system, [rng.randbytes(size) for size in (0, 7, LARGE)])


@fault("oversized", "streams")
def oversized(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Frames over the limit, for the learner and for the inference workers."""
    return _to_be_refused(
        system, _dead_letters(system) + _publish(system, [rng.randbytes(MAX_FRAME_BYTES + extra) for extra in (1, LARGE)])
    )


def _publish(system: System, frames: list[bytes]) -> int:
    for plane, stream in (("control", keys.samples(RUN)), ("data", keys.eval_stream(RUN))):
        with system.client(plane) as client:
            for frame in frames:
                RedisBus(client).publish(stream, frame)
    return 2 * len(frames)


def _to_be_refused(system: System, wanted: int) -> Harm:
    return Harm(lambda: _dead_letters(system) >= wanted)


def _dead_letters(system: System) -> int:
    total = 0
    for plane in ("control", "data"):
        with system.client(plane) as client:
            total += RedisBus(client).dead_letters()
    return total


@fault("nan", "weights")
@fault("truncated", "weights")
@fault("wrong-hash", "weights")
def forge_weights(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """An event of weights that hold NaN, that are cut short, or that have another hash; the learner is held until they were refused."""
    # Stopped, so that no better weights come before these were looked at.
    log, release = system.log("inference"), signalled(signal.SIGSTOP, system.working("learner"))
    try:
        version = offer_weights(system, scenario.fault)
    except BaseException:
        release()
        raise

    def healed() -> bool:
        return log.says("weights_refused", f"version={version}") and any(
            beat.weight_versions.get(RUN) for beat in system.beats("inference")
        )

    return Harm(healed, lift=release)


def offer_weights(system: System, fault: str) -> int:
    """Publishes bad weights and returns their version, which the system watches for from now on."""
    config = system.config()
    with system.client() as client:
        view = Ledger(client).run(RUN)
        sections = RunSections.model_validate_json(view.record.sections)
        store = open_store(config.store, directory=system.folder / RUN / "weights", client=client)
        data = _weights(sections, fill=float("nan") if fault == "nan" else 0.5)
        sha256, uri = store.put(data[: len(data) // 2] if fault == "truncated" else data)
        if fault == "wrong-hash":
            sha256 = "0" * len(sha256)
        bus = RedisBus(client)
        version = max(decode(entry.frame, WeightEvent).version for entry in bus.newest(keys.weights(RUN))) + FAR
        system.refused.add(version)
        bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, version, sha256, uri, 0, now_ms())))
    return version


def _weights(sections: RunSections, fill: float) -> bytes:
    import torch

    from azq.nets import WeightsMeta, build, to_bytes

    game = games.load(sections.run.game, **sections.run.params)
    module = build(sections.network, game, seed=1)
    with torch.no_grad():
        next(module.parameters()).fill_(fill)
    return to_bytes(module, WeightsMeta(game.name, 0, 0, dict(sections.run.params), sections.network.model_dump(mode="json")))
