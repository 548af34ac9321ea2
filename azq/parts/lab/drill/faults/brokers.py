"""Brokers and disks without room, a control plane that loses everything, and brokers that carry what must be refused."""

from __future__ import annotations

import contextlib
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import NotFound
from azq.host.brokers import BROKER_FOLDER
from azq.ledger import Ledger
from azq.parts.lab.drill.scenarios import BROKERS, InjectedFault, Scenario, fault
from azq.parts.lab.drill.system import READY_S, RUN, System
from azq.process.kin import Victim
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import MAX_FRAME_BYTES, decode, encode
from azq.wire.messages import WeightEvent

FAR = 1000  # versions between the newest weights and forged ones, so that the learner's next have another number
LARGE = 4 << 20  # bytes
FULL_S = 4.0
AWAY_S = 6.0  # of a learner: shorter than what `azq up` takes for a hang
NONE = 1  # byte
LOG_ROOM = 16 << 10  # bytes that the learner's own log may still grow


@fault("out-of-memory", *BROKERS)
def out_of_memory(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """A broker without memory for another byte: it refuses all writes, and evicts nothing."""
    return InjectedFault(lambda: True, lasts_s=FULL_S, lift=limit_memory(system, scenario.role.removeprefix("broker-")))


@fault("out-of-memory-for-good", "broker-control")
def fill_control_plane(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Stops the learner while games pile up, leaves the broker no more memory than it uses, and continues the learner."""
    learner = system.working("learner")
    before = system.until(system.counts, "the ledger", READY_S)
    go_on = system.kin.signalled(signal.SIGSTOP, learner)
    try:
        system.rest(time.monotonic() + AWAY_S, "games that wait")
        with system.client() as client:
            used = int(client.info("memory")["used_memory"])
        lift = limit_memory(system, "control", used)
    finally:
        go_on()

    def healed() -> bool:
        return system.counted(lambda now: now.inserted > before.inserted and not now.in_transit) and system.pid("learner") is not None

    return InjectedFault(healed, lift=lift)


@fault("lost", "broker-control")
def lose_control_plane(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Stops everything, deletes the brokers' files, and starts again: the run has to go on from its folder."""
    before = system.until(system.counts, "the ledger", READY_S)
    stored = system.log_reader.read()
    system.stop()
    shutil.rmtree(system.folder / BROKER_FOLDER)
    system.start()
    return InjectedFault(lambda: system.counted(lambda now: now.inserted >= stored and now.opened >= before.inserted))


@fault("disk-full", "learner")
def disk_full(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """The learner's files may grow no more: writes fail in the middle, as on a full disk. It must say so, live, and go on after it."""
    learner, log = system.working(scenario.role), system.log(scenario.role)
    lift = limit_files(system, learner)
    try:
        system.until(lambda: log.says("disk_refuses", "segments in"), "a line in the learner's log that the segments take nothing", READY_S)
    except BaseException:
        lift()
        raise
    return InjectedFault(lambda: system.pid(scenario.role) == learner.pid, lasts_s=FULL_S, lift=lift)


def limit_memory(system: System, plane: str, most: int = NONE) -> Callable[[], None]:
    """Leaves a broker so many bytes, or none; returns what gives them back."""
    with system.client(plane) as client:
        before = str(client.config_get("maxmemory")["maxmemory"])
        client.config_set("maxmemory", most)

    def lift() -> None:
        if before != str(NONE):  # else another fault that overlaps restores it
            with system.client(plane) as client:
                client.config_set("maxmemory", before)

    return lift


def limit_files(system: System, learner: Victim) -> Callable[[], None]:
    """Lets no file of the learner grow but its log; returns what ends that."""
    newest = max((system.folder / RUN / "segments").glob("*.seg"))
    return limit(system, learner, resource.RLIMIT_FSIZE, max(newest.stat().st_size, system.log("learner").begins_at + LOG_ROOM) + 1)


def limit(system: System, victim: Victim, kind: int, most: int) -> Callable[[], None]:
    """Gives a process a limit of `resource`'s; returns what takes it away."""
    system.kin.check(victim)
    _, hard = resource.prlimit(victim.pid, kind)
    resource.prlimit(victim.pid, kind, (most, hard))

    def lift() -> None:
        with contextlib.suppress(ProcessLookupError, NotFound):
            system.kin.check(victim)
            resource.prlimit(victim.pid, kind, (hard, hard))

    return lift


@fault("poison", "streams")
def poison(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Bytes that decode to nothing, one of them large, for the learner and for the inference workers."""
    wanted = _dead_letters(system) + send_poison(system, rng)
    return InjectedFault(lambda: _dead_letters(system) >= wanted)


def send_poison(system: System, rng: random.Random) -> int:
    """Sends them; returns how many there are."""
    return _publish(system, [rng.randbytes(size) for size in (0, 7, LARGE)])


@fault("oversized", "streams")
def oversized(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """Frames over the limit, for the learner and for the inference workers."""
    wanted = _dead_letters(system) + _publish(system, [rng.randbytes(MAX_FRAME_BYTES + extra) for extra in (1, LARGE)])
    return InjectedFault(lambda: _dead_letters(system) >= wanted)


def _publish(system: System, frames: list[bytes]) -> int:
    for plane, stream in (("control", keys.samples(RUN)), ("data", keys.eval_stream(RUN))):
        with system.client(plane) as client:
            for frame in frames:
                RedisBus(client).publish(stream, frame)
    return 2 * len(frames)


def _dead_letters(system: System) -> int:
    total = 0
    for plane in ("control", "data"):
        with system.client(plane) as client:
            total += RedisBus(client).dead_letters()
    return total


@fault("nan", "weights")
@fault("truncated", "weights")
@fault("wrong-hash", "weights")
def forge_weights(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """An event of weights that hold NaN, that are cut short, or that have another hash; the learner is held until they were refused."""
    # Stopped, so that no better weights come before these were looked at.
    log, release = system.log("inference"), system.kin.signalled(signal.SIGSTOP, system.working("learner"))
    try:
        version = offer_weights(system, scenario.fault)
    except BaseException:
        release()
        raise

    def healed() -> bool:
        return log.says("weights_refused", f"version={version}") and any(
            beat.weight_versions.get(RUN) for beat in system.beats("inference")
        )

    return InjectedFault(healed, lift=release)


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
