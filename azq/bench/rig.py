"""A small azq of its own for measurements: brokers in a temporary folder, a run with random weights, an inference worker."""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.console.guests import with_game
from azq.host.brokers import Brokers
from azq.host.roles import in_roles
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Process, Supervisor
from azq.status.observe import read_workers
from azq.store import open_store
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import WeightEvent

RUN = "bench"
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything a measurement needs; `pids` are the processes besides this one."""

    config: Config
    control: redis.Redis
    ledger: Ledger
    weights: bytes
    pids: tuple[int, ...]


@contextlib.contextmanager
def rig(config: Config, sections: RunSections, *, inference: int) -> Iterator[Rig]:
    """Starts it with so many inference workers, waits until each serves, and takes it all away at the end."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder:
        home = Path(folder)
        with Brokers(apart(config, home), home) as brokers:
            config = with_game(brokers.apply(apart(config, home)), sections.run.game)
            ledger = Ledger(brokers.control)
            weights = _publish(brokers.control, ledger, config, sections, home)
            supervisor = Supervisor(env=child_environment(in_roles(config)("inference"), "inference"))
            try:
                for number in range(inference):
                    log = home / f"inference-{number}.log"
                    supervisor.start(ChildSpec(f"inference-{number}", [sys.executable, "-m", "azq", "inference"], log))
                until(
                    lambda: len(served_versions(brokers.control)) == inference,
                    f"inference workers do not serve, see {home}/inference-*.log",
                    READY_S,
                )
                yield Rig(config, brokers.control, ledger, weights, (*brokers.pids, *_pids(supervisor)))
            finally:
                supervisor.stop(tuple(supervisor.children), threading.Event().wait)


def apart(config: Config, home: Path) -> Config:
    """The same settings in a folder of its own, with embedded brokers."""
    return config.model_copy(
        update={"home": home, "broker": config.broker.model_copy(update={"control_url": "", "data_url": "", "data_urls": ()})}
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def _publish(control: redis.Redis, ledger: Ledger, config: Config, sections: RunSections, home: Path) -> bytes:
    from azq.nets import NetSpec, WeightsMeta, build, to_bytes

    game = games.load(sections.run.game, **sections.run.params)
    spec = NetSpec.of(game)
    meta = WeightsMeta(game=game.name, params=dict(sections.run.params), network=sections.network.model_dump(), version=1, step=0)
    data = to_bytes(build(sections.network, spec), meta)
    directory = home / RUN
    store = open_store(config.store, directory=directory / "weights", client=control)
    sha256, uri = store.put(data)
    made_ms = now_ms()
    ledger.create_run(record_of(RUN, sections, directory, made_ms))
    RedisBus(control).publish(keys.weights(RUN), encode(WeightEvent(RUN, 1, sha256, uri, 0, made_ms)))
    return data


def served_versions(control: redis.Redis) -> list[int]:
    """The newest version that each inference worker serves of the rig's run, by their heartbeats; those that serve none are left out."""
    return [
        beat.weight_versions[RUN]
        for beat in read_workers(RedisBus(control))
        if beat.role == "inference" and beat.weight_versions.get(RUN, 0) >= 1
    ]


def _pids(supervisor: Supervisor) -> tuple[int, ...]:
    processes: list[Process] = [child.process for child in supervisor.children.values() if child.process]
    return tuple(process.pid for process in processes)
