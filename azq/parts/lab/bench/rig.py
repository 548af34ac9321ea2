"""The parts of an azq that a measurement needs and no more: brokers in a temporary folder, a run with random weights, inference workers.

No daemon or learner takes CPU beside what is measured, and self-play is in the process that measures; `azq.Local` starts all of them.

Run as a module this is a process of a benchmark: it calls the function that its arguments name, and prints what that returns as JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import redis
from numpy.typing import NDArray
from pydantic import BaseModel

from azq import games, metrics
from azq.actor.groups import GameGroup
from azq.bus.base import AskingBus
from azq.bus.redis import RedisBus
from azq.bus.same_host import HostFirstBus
from azq.clock import now_ms
from azq.config import Config, RunSections
from azq.errors import DeviceError, EvaluationTimeout
from azq.host.brokers import Brokers
from azq.host.game_files import with_game
from azq.host.users import in_roles
from azq.inference.ask.client import StreamEvaluator
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.process.proc import cpu_s
from azq.process.start import AZQ, PYTHON, child_environment, run_main
from azq.process.supervisor import ChildSpec, Supervisor
from azq.search.search import exploring, leaves_at_once, make_search
from azq.status.observe import read_weights, read_workers
from azq.store import open_store
from azq.waiting import until
from azq.wire import keys
from azq.wire.connect import connect
from azq.wire.messages import GameRecord, Heartbeat

if TYPE_CHECKING:
    from azq.inference.device.model import Model

RUN = "bench"
OPENING_PLIES = 4
READY_S, READY_ON_GPU_S = 60.0, 180.0  # a first start loads libraries, has cuDNN search for kernels, and records graphs

Settings = TypeVar("Settings", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything a measurement needs; `workers` are the processes of inference."""

    config: Config
    sections: RunSections
    control: redis.Redis
    ledger: Ledger
    weights: bytes
    brokers: tuple[int, ...]
    workers: tuple[int, ...]

    def beats(self) -> list[Heartbeat]:
        """Heartbeats of the inference workers."""
        return [beat for beat in read_workers(RedisBus(self.control)) if beat.role == "inference"]

    def serving(self, version: int) -> bool:
        """Whether every inference worker serves this version of the weights or a newer one, by their heartbeats."""
        return sum(beat.weight_versions.get(RUN, 0) >= version for beat in self.beats()) == len(self.workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes but this one."""
        return (*self.brokers, *self.workers)

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[StreamEvaluator]:
        """A client of the inference workers: over their sockets, or with `worker.evaluator = "stream"` over the broker."""
        game = rules(self.sections)
        name = f"bench-{os.getpid()}"
        bus: AskingBus = RedisBus(connect(self.config.broker.data_planes[0], blocking=True))
        if self.config.worker.evaluator == "auto":
            bus = HostFirstBus(bus, keys.eval_stream(RUN), keys.reply(name), self.config.home)
        with contextlib.closing(
            StreamEvaluator(bus, RUN, name, num_actions=game.num_distinct_actions(), value_size=game.value_size(), **options)
        ) as client:
            yield client

    def bare_network(self) -> Model:
        """The network with its weights in this process, without broker or queue."""
        from azq.inference.device.engine import Engine
        from azq.inference.device.model import Model
        from azq.nets import NetSpec
        from azq.nets.device import place, prepare_process

        placement = place(self.config.inference)
        prepare_process(placement.threads)
        engine = Engine(self.config.inference, placement)
        model = Model(NetSpec.of(rules(self.sections)), self.sections.network, engine)
        model.load(self.weights)
        refuse_fallbacks(engine.fallbacks, str(model.execution))
        return model


@contextlib.contextmanager
def rig(config: Config, sections: RunSections, *, inference: int) -> Iterator[Rig]:
    """Starts it with so many inference workers, waits until each serves, and takes it all away at the end."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="azq-bench-")))
        apart = changed(config, home=home, broker={"control_url": "", "data_url": "", "data_urls": ()})
        brokers = stack.enter_context(Brokers(apart, home))
        config = with_game(brokers.apply(apart), sections.run.game)
        ledger = Ledger(brokers.control)
        weights = _publish(brokers.control, ledger, config, sections)
        names = [f"inference-{number}" for number in range(inference)]
        specs = [ChildSpec(name, [*AZQ, "inference"], home / f"{name}.log") for name in names]
        supervisor = Supervisor(child_environment(in_roles(config)("inference"), "inference"))
        stack.callback(lambda: supervisor.stop(tuple(supervisor.children), threading.Event().wait))
        for spec in specs:
            supervisor.start(spec)
        workers = tuple(child.process.pid for child in supervisor.children.values() if child.process)
        machine = Rig(config, sections, brokers.control, ledger, weights, brokers.pids, workers)
        until(partial(machine.serving, 1), lambda: unready(machine.beats(), home), ready_s(config.inference.device))
        yield machine
        for beat in machine.beats():
            refuse_fallbacks(int(beat.rates.get(metrics.FALLBACKS, 0.0)), beat.note or beat.worker)


def ready_s(device: str) -> float:
    """How long an inference worker may take until it serves."""
    import torch

    return READY_ON_GPU_S if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()) else READY_S


def unready(beats: Sequence[Heartbeat], home: Path) -> str:
    """Why nothing can be measured yet: notes of the inference workers or, without any, the last lines of their logs."""
    notes = [beat.note for beat in beats if beat.note]
    silent = [last_words(log.read_text("utf-8", "replace")) for log in sorted(home.glob("inference-*.log"))]
    return f"inference workers do not serve: {'; '.join(notes or silent)[:300]}"


def refuse_fallbacks(fallbacks: int, execution: str) -> None:
    """`DeviceError` where forward passes fell back: what was measured is not what this machine does."""
    if fallbacks:
        remedy = "free the device's memory, or set a smaller inference.max_batch"
        raise DeviceError(f"forward passes fell back {fallbacks} times while they were measured ({execution}); {remedy}")


def changed(settings: Settings, **sections: Any) -> Settings:
    """Settings with some values of some sections changed, where a dictionary names them, or with other sections."""
    update = {
        name: getattr(settings, name).model_copy(update=values) if isinstance(values, dict) else values for name, values in sections.items()
    }
    return settings.model_copy(update=update)


def rules(sections: RunSections) -> games.Game:
    """The game of a run."""
    return games.load(sections.run.game, **sections.run.params)


def observations(sections: RunSections, batch: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Leaves as self-play asks for them, some random plies into a run's game: packed (B, P), and what is legal there."""
    game = rules(sections)
    config = exploring(sections.search, random_opening_plies=OPENING_PLIES)
    group = GameGroup(make_search(game, config, num_slots=batch, seed=0), game, leaves_at_once(sections.search, game))
    for slot in range(batch):
        group.start(slot, GameRecord(slot + 1))
    group.advance()
    packed, legal = group.request()
    return packed[:batch].copy(), legal[:batch].copy()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class ResourceUse(NamedTuple):
    """Work done, and seconds of the wall clock and of all CPUs that it took."""

    done: int
    wall_s: float
    cpu_s: float


def in_turns(turns: Mapping[str, tuple[Callable[[float], int], Sequence[int]]], seconds: float, rounds: int) -> dict[str, ResourceUse]:
    """Measures functions that work for so many seconds and return how much they did, each with the processes whose CPU counts.

    They take turns, each warmed up before, so that whatever else the machine does weighs on all alike.
    """
    turn_s = seconds / rounds / len(turns)
    spent = {name: ResourceUse(0, 0.0, 0.0) for name in turns}
    for turn, _ in turns.values():
        turn(turn_s / 2)
    for _ in range(rounds):
        for name, (turn, pids) in turns.items():
            used_s, began_s, before = cpu_s(pids), time.monotonic(), spent[name]
            done = before.done + turn(turn_s)
            spent[name] = ResourceUse(done, before.wall_s + time.monotonic() - began_s, before.cpu_s + cpu_s(pids) - used_s)
    return spent


def command_of(part: Callable[..., Any], **task: Any) -> list[str]:
    """The command of a process that calls this function of a benchmark's module with this task; others may read it."""
    return [*PYTHON, "-m", "azq.parts.lab.bench.rig", part.__module__, part.__name__, json.dumps(task)]


class PartProcess(subprocess.Popen[str]):
    """A part of a benchmark in another process and session, which answers with lines of JSON; it ends with its block."""

    def __init__(self, part: Callable[..., Any], env: Mapping[str, str] | None = None, **task: Any) -> None:
        pipe = subprocess.PIPE
        super().__init__(command_of(part, **task), env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kills it and what it started."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self.communicate()

    def write(self, *words: object) -> None:
        """A line for it; nothing where it died, which its answer says."""
        assert self.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(f"{' '.join(map(str, words))}\n")
            self.stdin.flush()

    def read(self, within_s: float) -> Any:
        """Its next line; `EvaluationTimeout` says how it failed, or that it was ended because it took longer."""
        assert self.stdout is not None
        late = threading.Timer(within_s, self.kill)
        late.start()
        try:
            line = self.stdout.readline()
        finally:
            late.cancel()
        return json.loads(line) if line else self.answer(within_s)

    def answer(self, within_s: float) -> Any:
        """Its last line before it ends; raises as `read`."""
        try:
            output, errors = self.communicate(timeout=within_s)
        except BaseException as error:
            self.end()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise EvaluationTimeout(f"the benchmark's process was ended after {within_s:.0f} s without an answer") from None
        if self.returncode or not output.strip():
            raise EvaluationTimeout(f"the benchmark's process ended with exit code {self.returncode}: {last_words(errors)[:300]}")
        return json.loads(output.splitlines()[-1])


def answer_line(answer: Any) -> None:
    """Sends a line of JSON to the process that started this one; what games print goes elsewhere."""
    print(json.dumps(answer), file=sys.__stdout__, flush=True)


def start_together(processes: Sequence[PartProcess], seconds: float, warm_up_s: float) -> float:
    """Waits until all that called `await_start` are ready and sends them the interval that counts; returns when that begins."""
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # of one that died: nothing, and its answer says so
    start_s = time.monotonic() + warm_up_s
    for process in processes:
        process.write(start_s, start_s + seconds)
    return start_s


def await_start() -> tuple[float, float]:
    """Reports that this process is ready; returns the interval to measure, in seconds of the machine's monotonic clock."""
    answer_line("ready")
    start_s, end_s = map(float, sys.stdin.readline().split())
    return start_s, end_s


def last_words(errors: str) -> str:
    """The last line of a process."""
    return (errors.strip().splitlines() or ["no output"])[-1]


def _publish(control: redis.Redis, ledger: Ledger, config: Config, sections: RunSections) -> bytes:
    from azq.learner.publish import Publisher
    from azq.nets import NetSpec, WeightsMeta, build, to_bytes

    game = rules(sections)
    meta = WeightsMeta(game=game.name, params=dict(sections.run.params), network=sections.network.model_dump(), version=1, step=0)
    data = to_bytes(build(sections.network, NetSpec.of(game)), meta)
    directory = config.home / RUN
    ledger.create_run(record_of(RUN, sections, directory, now_ms()))
    store = open_store(config.store, directory=directory / "weights", client=control)
    Publisher(RedisBus(control), store, RUN).publish(data, 1, 0)
    return data


def published(config: Config, control: redis.Redis) -> bytes:
    """The weights of a rig, for another process of it."""
    event = read_weights(RedisBus(control), RUN)[0]
    return open_store(config.store, directory=config.home / RUN / "weights", client=control).get(event.uri, event.sha256)


def _main() -> int:
    module, part, task = sys.argv[1:]
    sys.stdout = sys.stderr
    answer_line(getattr(importlib.import_module(module), part)(**json.loads(task)))
    return 0


if __name__ == "__main__":
    raise SystemExit(run_main("bench", _main))
