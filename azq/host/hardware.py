"""What this machine has, and which of its GPUs are no longer there."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from azq.files import publish_file
from azq.process.cards import Gpu, survey
from azq.process.proc import machine_memory_bytes, memory_grows, usable_cores, usable_memory_bytes
from azq.queue import detect_tags

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
    """This machine; its GPUs are tried by a process of their own."""
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
    if (known := seen | {gpu.uuid: f"{gpu.device} ({gpu.name})" for gpu in machine.gpus if gpu.uuid}) != seen:
        publish_file(home / SEEN, json.dumps(known).encode())


def _seen(home: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((home / SEEN).read_bytes()))
    return {}
