"""What this machine has, which of its GPUs are gone, and the plan made of that: which device does what, and how many processes play."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from azq.config import Config
from azq.files import publish_file
from azq.metrics import gpu_texts
from azq.process.cards import Gpu, survey
from azq.process.proc import machine_memory_bytes, memory_grows, usable_cores, usable_memory_bytes
from azq.queue import detect_tags

LEAST_FREE_BYTES = 1 << 30  # of a GPU's memory: a context, and a network with its buffers and graphs
APART_FROM = 4  # GPUs for each that trains, from which on that one only trains: a tenth of the work is training
SELFPLAY_CORES_EACH = 12  # for each GPU that infers: with more, more requests wait
SLOT_BYTES = 768 << 20  # of memory for one job at work: its process, trees and evaluation cache
KEPT_BYTES = 1 << 30  # for everything else on the machine


@dataclass(frozen=True, slots=True)
class Wishes:
    """What settings ask of a machine, by their names there; an empty device: nothing of that kind."""

    inference: str = ""
    inference_devices: tuple[str, ...] = ()
    learner: str = ""
    ranks: int = 1
    threads: int = 1
    concurrency: int = 0
    evaluator: str = "stream"  # whom self-play asks; auto: itself where no GPU infers
    learner_devices: tuple[str, ...] = ()  # rank 0's first; none: as `learner` says

    @staticmethod
    def of(config: Config) -> Wishes:
        """Those of an `azq up`."""
        evaluator: str = config.selfplay.evaluator
        infers = (config.inference.device, config.inference.devices) if evaluator == "stream" or config.arena.evaluates else ("", ())
        if evaluator == "stream":  # by its run, which leaves it to each host
            own = config.worker.evaluator
            evaluator = "stream" if own == "auto" and config.network.kind != "mlp" else own
        learner, threads = config.learner, config.selfplay.threads
        return Wishes(*infers, learner.device, learner.ranks, threads, config.worker.concurrency, evaluator, learner.devices)


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """An inference worker each on some devices, a learner or its ranks on some, and self-play processes of so many threads each."""

    inference: tuple[str, ...]
    training: tuple[str, ...]
    processes: int
    threads: int
    why: str  # so many processes
    left_out: dict[str, str]  # device, or `GPU` for all of them -> why, and the remedy
    evaluator: str = "stream"  # whom self-play asks: the workers of the stream, itself (local), or none (uniform)

    def __str__(self) -> str:
        itself = ", which evaluate for themselves" * (self.evaluator == "local")
        play = f"self-play in {self.processes} x {self.threads} threads{itself} ({self.why})"
        return f"inference on {', '.join(self.inference) or 'none'}, training on {', '.join(self.training) or 'none'}, {play}"

    def inference_children(self, *, named: bool = False) -> dict[str, list[str]]:
        """Names and arguments of the inference workers. A lone one on what `auto` takes, unless by name, may go on on the CPU."""
        if not named and self.inference in (("cuda:0",), ("mps",)):
            return {"inference": ["inference"]}
        names = (f"inference.{number}" if number else "inference" for number in range(len(self.inference)))
        return {name: ["inference", "--device", device] for name, device in zip(names, self.inference, strict=True)}


def plan(machine: Machine, wishes: Wishes) -> DevicePlan:
    """The plan of a machine. A device that is named is taken, there or not: its process says what is wrong with it."""
    left_out = {gpu.device: refusal for gpu in machine.gpus if (refusal := _refusal(gpu))}
    left_out |= {"GPU": machine.trouble} if machine.trouble else {}
    gpus = tuple(gpu.device for gpu in machine.gpus if gpu.device not in left_out)
    there = [device for device in wishes.inference_devices if device in (*gpus, "cpu")]
    left_out = {device: "asked for and not there" for device in wishes.inference_devices if there and device not in there} | left_out
    other = "mps" if "mps" in machine.tags else "cpu"
    training = wishes.learner_devices or _allowed(wishes.learner, gpus, other)[: wishes.ranks]
    inference = there or wishes.inference_devices or _beside(training, _allowed(wishes.inference, gpus, other))
    if wishes.evaluator == "auto":
        wishes = replace(wishes, evaluator="local" if set(inference) <= {"cpu"} else "stream")
    processes, why = _processes(machine, wishes, inference, training)
    return DevicePlan(tuple(inference), training, processes, wishes.threads, why, left_out, wishes.evaluator)


def described(machine: Machine, devices: DevicePlan) -> list[str]:
    """A line for each device: what it is, its driver's figures and its work; and one for self-play."""
    facts = {gpu.device: f"{', '.join([gpu.name, f'{gpu.memory_bytes >> 30} GiB', *gpu_texts(gpu.figures)])}: " for gpu in machine.gpus}
    lines = []
    for device in dict.fromkeys((*facts, *devices.left_out, *devices.inference, *devices.training)):
        does = " and ".join(task for task, which in (("trains", devices.training), ("infers", devices.inference)) if device in which)
        lines.append(f"{device:<10}{facts.get(device, '')}{devices.left_out.get(device) or does or 'rests'}")
    return [*lines, f"{'self-play':<10}{devices.processes} x {devices.threads} threads on {machine.cores} cores: {devices.why}"]


def _refusal(gpu: Gpu) -> str:
    """Why a GPU is left out; empty where it is not."""
    if not gpu.trouble and gpu.free_bytes < LEAST_FREE_BYTES:
        return f"{gpu.free_bytes / (1 << 30):.1f} GiB of its memory are free: end what has the rest, `nvidia-smi` shows it"
    return gpu.trouble


def _allowed(wish: str, gpus: tuple[str, ...], other: str) -> tuple[str, ...]:
    """The devices that a setting allows: `auto` goes on without a GPU, `cuda` and names of devices do not."""
    if wish in ("auto", "cuda"):
        return gpus or (other if wish == "auto" else wish,)
    return (wish,) if wish else ()


def _beside(training: Sequence[str], allowed: Sequence[str]) -> Sequence[str]:
    """The devices that infer: all of them, but for those that train where there are many."""
    apart = len(allowed) >= APART_FROM * len(training)
    return [device for device in allowed if not apart or device not in training] or allowed


def _processes(machine: Machine, wishes: Wishes, inference: Sequence[str], training: Sequence[str]) -> tuple[int, str]:
    """Self-play processes, and why so many: cores that nothing else needs by the threads of each, as far as memory goes."""
    if wishes.concurrency:
        return wishes.concurrency, "worker.concurrency asks for them"
    gpus = sum(device != "cpu" for device in inference)
    trains = bool(gpus and training)
    alone = 4 if wishes.evaluator == "local" else 2  # of so many cores one is the learner's, and the inference worker's that is asked
    taken = gpus + 2 * trains if gpus else machine.cores // alone * bool(inference or training)  # of GPUs' cores one for brokers and daemon
    bounds = {f"other work takes {taken} cores": (machine.cores - taken) // wishes.threads}
    if not machine.memory_grows:
        bounds[f"memory is {machine.memory_bytes / (1 << 30):.0f} GiB"] = (machine.memory_bytes - KEPT_BYTES) // SLOT_BYTES
    if trains:
        bounds[f"{SELFPLAY_CORES_EACH} cores keep a GPU busy"] = SELFPLAY_CORES_EACH * gpus // wishes.threads
    why = min(bounds, key=lambda reason: bounds[reason])
    return max(1, bounds[why]), why


SEEN = ".gpus.json"  # in a home: GPUs by their uuid that were there when azq started


@dataclass(frozen=True, slots=True)
class Machine:
    host: str
    cores: int
    memory_bytes: int
    tags: tuple[str, ...]
    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""  # why none of its GPUs can be used, and the remedy
    memory_grows: bool = False  # so that `memory_bytes` is only what it has now


def detect() -> Machine:
    """This machine; its GPUs are tried in a subprocess."""
    memory, total = usable_memory_bytes(), machine_memory_bytes()
    grows = memory == total and memory_grows(total)
    return Machine(socket.gethostname(), usable_cores(), memory, detect_tags(), *survey(), memory_grows=grows)


def vanished(home: Path, machine: Machine) -> dict[str, str]:
    """GPUs that were there at an earlier start and are not now, and what to do."""
    there = {gpu.uuid for gpu in machine.gpus}
    remedy = f"gone; look at `nvidia-smi` and `dmesg`, or delete {home / SEEN} where that is meant"
    return {name: remedy for uuid, name in _seen(home).items() if uuid not in there}


def remember(home: Path, machine: Machine) -> None:
    """Notes the GPUs of now beside those of earlier starts."""
    seen = _seen(home)
    if (every := seen | {gpu.uuid: f"{gpu.device} ({gpu.name})" for gpu in machine.gpus if gpu.uuid}) != seen:
        publish_file(home / SEEN, json.dumps(every).encode())


def _seen(home: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((home / SEEN).read_bytes()))
    return {}
