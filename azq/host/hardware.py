"""What this machine has, and which services and inference workers suit it. Detection looks at files only: no device library is loaded."""

from __future__ import annotations

import importlib.metadata
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from azq.config import InferenceConfig
from azq.errors import ConfigError
from azq.process.proc import usable_cores
from azq.queue import detect_tags
from azq.wire.kinds import Kind, queue_name

ROLES = (*Kind, "inference")
SLOT_BYTES = 768 << 20  # of memory for one job at work: its process, trees and evaluation cache
KEPT_BYTES = 1 << 30  # for everything else on the machine


@dataclass(frozen=True, slots=True)
class Machine:
    host: str
    cores: int
    memory_bytes: int
    cuda_devices: int
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Service:
    """One service: `azq worker` on an instance that is its queues, or `azq inference` on one that is its device."""

    kind: Literal["worker", "inference"]
    instance: str
    concurrency: int = 1

    @property
    def unit(self) -> str:
        return f"azq-{self.kind}@{self.instance}.service"

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `azq` on the command line."""
        if self.kind == "inference":
            return ("inference", "--device", self.instance)
        return ("worker", "--queues", self.instance, "--concurrency", str(self.concurrency))

    def __str__(self) -> str:
        jobs = f", {self.concurrency} jobs at once" if self.concurrency > 1 else ""
        return f"azq-{self.kind}@{self.instance}{jobs}"


def detect(devices: Path = Path("/dev")) -> Machine:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Machine(socket.gethostname(), usable_cores(), memory, len(list(devices.glob("nvidia[0-9]*"))), detect_tags())


def parse_roles(text: str, machine: Machine) -> tuple[str, ...]:
    """Roles of a comma-separated list; all that suit the machine where it is empty. A CPU evaluates leaves only when it is told to."""
    if not text:
        return ROLES if machine.cuda_devices else tuple(Kind)
    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not wanted or (unknown := [role for role in wanted if role not in ROLES]):
        raise ConfigError(f"--roles {text!r} names {unknown[0] if wanted else 'nothing'!r}; there are: {', '.join(ROLES)}")
    return wanted


def services(machine: Machine, roles: Sequence[str], tags: Sequence[str] = (), concurrency: int | None = None) -> tuple[Service, ...]:
    """The services of these roles: a worker on all tags for self-play and one for evaluation jobs, an inference worker a device."""
    all_tags = tuple(dict.fromkeys((*machine.tags, *tags)))
    found: list[Service] = []
    if "inference" in roles:
        devices = [f"cuda:{index}" for index in range(machine.cuda_devices)] or ["mps" if "mps" in machine.tags else "cpu"]
        found += [Service("inference", device) for device in devices]
    if Kind.SELFPLAY in roles:
        found.append(Service("worker", _queues(Kind.SELFPLAY, all_tags), concurrency or slots(machine, roles)))
    if Kind.EVAL in roles:
        found.append(Service("worker", _queues(Kind.EVAL, all_tags)))
    return tuple(found)


def slots(machine: Machine, roles: Sequence[str]) -> int:
    """Self-play jobs at once: a core each but for those that inference needs, as far as memory goes."""
    inference = 0 if "inference" not in roles else machine.cuda_devices or machine.cores // 2
    memory = max(1, (machine.memory_bytes - KEPT_BYTES) // SLOT_BYTES)
    return max(1, min(machine.cores - inference, memory))


def _queues(kind: Kind, tags: Sequence[str]) -> str:
    return ":".join(queue_name(kind, tag) for tag in tags)


def inference_children(config: InferenceConfig, devices: int) -> dict[str, list[str]]:
    """Names and arguments of the inference workers: one for the device that is set, or one a CUDA device where there are several."""
    if config.device not in ("auto", "cuda") or devices < 2:
        return {"inference": ["inference"]}
    names = ["inference", *(f"inference.{index}" for index in range(1, devices))]
    return {name: ["inference", "--device", f"cuda:{index}"] for index, name in enumerate(names)}


def usable_cuda_devices() -> int:
    """CUDA devices of this machine that torch may use here."""
    return visible(detect().cuda_devices, os.environ, importlib.metadata.version("torch"))


def visible(devices: int, environment: Mapping[str, str], torch_version: str) -> int:
    """What is left of a machine's devices: none for a torch without CUDA, else what CUDA_VISIBLE_DEVICES names up to a bad entry."""
    if torch_version.endswith("+cpu"):
        return 0
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return devices
    count = 0
    for entry in (part.strip() for part in named.split(",")):
        if not entry or entry == "-1" or (entry.isdigit() and int(entry) >= devices):
            break
        count += 1
    return min(count, devices)
