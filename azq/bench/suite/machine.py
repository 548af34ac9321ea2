"""What was measured on: processor, cores, GPU, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import azq
from azq.config import InferenceConfig


def facts(device: str = "auto") -> dict[str, Any]:
    """The machine and the software, as a table's head wants them. Raises `ConfigError` for a device that is not there."""
    import torch

    from azq.inference.device.placement import place

    placement = place(InferenceConfig(device=device))
    on_gpu = placement.device.type == "cuda"
    return {
        "device": str(placement.device),
        "device_name": torch.cuda.get_device_name(placement.device) if on_gpu else processor(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "precision": placement.precision,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "azq": azq.__version__,
        "commit": commit(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, or its architecture where the system does not tell."""
    lines = cpuinfo.read_text("utf-8", "replace").splitlines() if cpuinfo.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """The source's commit, with `+` where files differ from it; empty outside a checkout, where AZQ_COMMIT may name it."""
    folder = Path(azq.__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return os.environ.get("AZQ_COMMIT", "")
    return found.stdout.strip() or os.environ.get("AZQ_COMMIT", "")
