"""The machine that gpu_first.py measures on: what a figure depends on, and what may stand in its way."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def machine_facts() -> dict[str, Any]:
    """What a figure depends on, and what may stand in its way."""
    memory = Path("/proc/meminfo").read_text().splitlines()[:3] if Path("/proc/meminfo").is_file() else []
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": [" ".join(line.split()) for line in memory],
        "cards": smi("--query-gpu=name,driver_version,memory.total,memory.used,compute_mode"),
        "holders": smi("--query-compute-apps=pid,process_name,used_memory"),
    }


def smi(*query: str) -> list[str]:
    try:
        answer = subprocess.run(["nvidia-smi", *query, "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def problems(facts: Mapping[str, Any]) -> list[str]:
    """What may spoil the figures, each in a line with its remedy. Pure."""
    return [f"a process has memory of the card ({holder}): end it, or figures are of a part of it" for holder in facts["holders"]]
