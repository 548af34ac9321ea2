"""GPUs of this host: that there are some, as their drivers show in /dev; which of them torch can use, as a process says that has it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from azq.errors import DeviceError, reason_of
from azq.process.start import ORDER, PYTHON

NODES = {"cuda": "nvidia[0-9]*", "rocm": "kfd"}  # hardware tag -> what its driver makes in /dev
SURVEY = (*PYTHON, "-c", "from azq.nets.device import print_survey; print_survey()")
SURVEY_S = 60.0  # loading torch and its libraries, and a context on each card


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as torch counts those of this host."""

    device: str  # cuda:1, also where the card is AMD's
    name: str = ""
    memory_bytes: int = 0
    free_bytes: int = 0
    uuid: str = ""
    trouble: str = ""  # why it cannot be used, and the remedy
    figures: Mapping[str, float] = field(default_factory=dict)  # by their names in azq.metrics


Cards = tuple[tuple[Gpu, ...], str]  # and why torch counts none where a driver shows some, with the remedy


def drivers(devices: Path = Path("/dev")) -> tuple[str, ...]:
    """The hardware tags of the GPUs here; no device library is loaded."""
    return tuple(tag for tag, pattern in NODES.items() if any(devices.glob(pattern)))


class LateGpu:
    """Whether a GPU's driver came up after a process had taken the CPU that would take any device; made before it takes one."""

    def __init__(self, setting: str, devices: Path = Path("/dev")) -> None:
        self._waits, self._devices = setting == "auto", devices
        self._seen = self._nodes()

    def check(self, taken: str) -> None:
        """Raises `DeviceError`, after which a process starts again."""
        if self._waits and taken == "cpu" and (late := self._nodes() - self._seen):
            raise DeviceError(f"{self._devices / min(late)} showed up after this process had taken the CPU; it starts again with the GPU")

    def _nodes(self) -> set[str]:
        return {path.name for pattern in ("nvidia*", "kfd") for path in self._devices.glob(pattern)}


def survey(devices: Path = Path("/dev")) -> Cards:
    """Surveys the cards in a subprocess: this one needs no torch, and survives a driver that hangs or crashes."""
    if not drivers(devices):
        return (), ""
    try:
        done = subprocess.run(SURVEY, capture_output=True, timeout=SURVEY_S, check=True, env=dict([ORDER]) | os.environ)
        cards: Cards = msgspec.json.decode(done.stdout.splitlines()[-1], type=Cards)
        return cards
    except (subprocess.SubprocessError, IndexError, msgspec.DecodeError) as error:
        return (), f"the GPUs could not be surveyed ({reason_of(error)}); see `dmesg`"
