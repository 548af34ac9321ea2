"""What torch can use of this host's GPUs and what their driver tells of them; run as a module it prints the former as JSON."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
import torch

from azq import metrics
from azq.nets.device import explained, no_cuda
from azq.process.cards import Cards, Gpu

LOOK_S = 5.0  # between two looks of a gauge
#: of NVML, or of AMD's library where torch is built for ROCm -> factor to the figure's unit
READINGS: dict[str, tuple[Callable[[torch.device], int], float]] = {
    metrics.GPU_BUSY: (torch.cuda.utilization, 1e-2),
    metrics.GPU_POWER_W: (torch.cuda.power_draw, 1e-3),
    metrics.GPU_TEMPERATURE_C: (torch.cuda.temperature, 1.0),
}


def look() -> Cards:
    """Each GPU that torch counts, tried; or why it counts none."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return tuple(map(_gpu, range(count))), "" if count else no_cuda()


def _gpu(index: int) -> Gpu:
    device = torch.device("cuda", index)
    gpu = Gpu(str(device))
    try:
        facts = torch.cuda.get_device_properties(device)
        gpu = replace(gpu, name=facts.name, memory_bytes=facts.total_memory, uuid=str(facts.uuid))
        torch.ones(1, device=device).sum().item()  # the first kernel: some cards fail only here
        figures = device_figures(device)
    except (RuntimeError, AssertionError) as error:
        return replace(gpu, trouble=explained(error))
    return replace(gpu, free_bytes=int(figures[metrics.GPU_MEMORY_BYTES] - figures[metrics.GPU_MEMORY_USED_BYTES]), figures=figures)


def device_figures(device: torch.device) -> dict[str, float]:
    """A GPU's memory in use, by whomever, and in all; load, power and temperature where nvidia-ml-py is installed; nothing of a CPU."""
    if device.type != "cuda":
        return {}
    free, total = torch.cuda.mem_get_info(device)
    figures = {metrics.GPU_MEMORY_USED_BYTES: float(total - free), metrics.GPU_MEMORY_BYTES: float(total)}
    for name, (read, factor) in READINGS.items():
        try:
            figures[name] = factor * read(device)
        except Exception:  # no such library, or a card that does not tell this
            continue
    return figures


class Gauge(threading.Thread):
    """Reads a device's figures now and then, beside the thread that works: a driver takes its time to tell."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(name="gauge", daemon=True)
        self.figures: dict[str, float] = {}
        self._device = device
        self.start()

    def run(self) -> None:
        """Reads as long as its process lives; of a device that is lost the last figures stay, and its process says what is wrong."""
        with contextlib.suppress(RuntimeError, AssertionError):
            while figures := device_figures(self._device):
                self.figures = figures
                time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(look()).decode() + "\n")
