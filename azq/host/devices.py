"""Which inference workers one machine gets: one a CUDA device that this process may use. No device library is loaded."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping

from azq.config import InferenceConfig
from azq.host.join.machine import detect


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
