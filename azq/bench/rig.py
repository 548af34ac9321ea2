"""A small azq of its own for measurements: brokers in a temporary folder, a run with random weights, inference workers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import redis
from numpy.typing import NDArray

from azq import games
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.errors import EvaluationTimeout
from azq.host.brokers import Brokers
from azq.host.rundir import with_game
from azq.host.users import in_roles
from azq.inference.ask.client import StreamEvaluator
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor
from azq.status.observe import read_workers
from azq.store import open_store
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.messages import Heartbeat, WeightEvent

if TYPE_CHECKING:
    from azq.inference.device.model import Model

RUN = "bench"
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything a measurement needs; `pids` are the processes besides this one."""

    config: Config
    sections: RunSections
    control: redis.Redis
    ledger: Ledger
    weights: bytes
    pids: tuple[int, ...]

    def beats(self) -> list[Heartbeat]:
        """Heartbeats of the inference workers."""
        return [beat for beat in read_workers(RedisBus(self.control)) if beat.role == "inference"]

    def serving(self, version: int) -> int:
        """Inference workers that serve this version of the weights or a newer one, by their heartbeats."""
        return sum(beat.weight_versions.get(RUN, 0) >= version for beat in self.beats())

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[StreamEvaluator]:
        """A client of the inference workers."""
        game = rules(self.sections)
        bus = RedisBus(connect(self.config.broker.data_planes[0], blocking=True))
        with contextlib.closing(
            StreamEvaluator(bus, RUN, "bench", num_actions=game.num_distinct_actions(), value_size=game.value_size(), **options)
        ) as client:
            yield client

    def bare_network(self) -> Model:
        """The network with its weights in this process, without broker or queue."""
        from azq.inference.device.model import Model
        from azq.inference.device.placement import place
        from azq.nets import NetSpec
        from azq.nets.device import prepare_process

        placement = place(self.config.inference)
        prepare_process(placement.threads)
        model = Model(NetSpec.of(rules(self.sections)), self.sections.network, self.config.inference, placement)
        model.load(self.weights)
        return model


@contextlib.contextmanager
def rig(config: Config, sections: RunSections, *, inference: int) -> Iterator[Rig]:
    """Starts it with so many inference workers, waits until each serves, and takes it all away at the end."""
    with own_brokers(config) as (config, brokers):
        config, home = with_game(config, sections.run.game), config.home
        ledger = Ledger(brokers.control)
        weights = _publish(brokers.control, ledger, config, sections)
        supervisor = Supervisor(env=child_environment(in_roles(config)("inference"), "inference"))
        try:
            for number in range(inference):
                log = home / f"inference-{number}.log"
                supervisor.start(ChildSpec(f"inference-{number}", [sys.executable, "-m", "azq", "inference"], log))
            workers = tuple(child.process.pid for child in supervisor.children.values() if child.process)
            machine = Rig(config, sections, brokers.control, ledger, weights, (*brokers.pids, *workers))
            until(lambda: machine.serving(1) == inference, f"inference workers do not serve, see {home}/inference-*.log", READY_S)
            yield machine
        finally:
            supervisor.stop(tuple(supervisor.children), threading.Event().wait)


@contextlib.contextmanager
def own_brokers(config: Config) -> Iterator[tuple[Config, Brokers]]:
    """Embedded brokers in a temporary folder, and the same settings with their addresses and that folder for a home."""
    with tempfile.TemporaryDirectory(prefix="azq-bench-") as folder:
        nowhere = config.broker.model_copy(update={"control_url": "", "data_url": "", "data_urls": ()})
        apart = config.model_copy(update={"home": Path(folder), "broker": nowhere})
        with Brokers(apart, Path(folder)) as brokers:
            yield brokers.apply(apart), brokers


def rules(sections: RunSections) -> games.Game:
    """The game of a run."""
    return games.load(sections.run.game, **sections.run.params)


def observations(sections: RunSections, batch: int) -> NDArray[np.uint8]:
    """Random packed observations (B, P) of a run's game."""
    return np.random.default_rng(0).integers(0, 256, (batch, rules(sections).packed_size()), np.uint8)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def free_port() -> int:
    """A port of this machine that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def brokers_cpu_s(urls: Iterable[str]) -> float:
    """CPU-seconds of the brokers at these addresses so far, each counted once."""
    used_s: dict[str, float] = {}
    for url in urls:
        with connect(url) as client:
            facts = client.info()
        used_s[facts["run_id"]] = float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
    return sum(used_s.values())


def child(module: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A part of a benchmark in a process and a session of its own, which answers with lines of JSON."""
    command = [sys.executable, "-m", f"azq.bench.{module}", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def answer_of(process: subprocess.Popen[str], within_s: float) -> Any:
    """The last line that a child says; `EvaluationTimeout` tells how it failed. What it started ends with it."""
    try:
        said, complaint = process.communicate(timeout=within_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise EvaluationTimeout(f"the benchmark's process was ended after {within_s:.0f} s without an answer") from None
    if process.returncode or not said.strip():
        last = (complaint.strip().splitlines() or ["it said nothing"])[-1]
        raise EvaluationTimeout(f"the benchmark's process ended with exit code {process.returncode}: {last[:300]}")
    return json.loads(said.splitlines()[-1])


def _publish(control: redis.Redis, ledger: Ledger, config: Config, sections: RunSections) -> bytes:
    from azq.nets import NetSpec, WeightsMeta, build, to_bytes

    game = rules(sections)
    meta = WeightsMeta(game=game.name, params=dict(sections.run.params), network=sections.network.model_dump(), version=1, step=0)
    data = to_bytes(build(sections.network, NetSpec.of(game)), meta)
    directory = config.home / RUN
    sha256, uri = open_store(config.store, directory=directory / "weights", client=control).put(data)
    made_ms = now_ms()
    ledger.create_run(record_of(RUN, sections, directory, made_ms))
    RedisBus(control).publish(keys.weights(RUN), encode(WeightEvent(RUN, 1, sha256, uri, 0, made_ms)))
    return data
