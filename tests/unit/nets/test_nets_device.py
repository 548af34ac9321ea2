"""The device that a process computes on, and the memory that it keeps."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from azq.errors import ConfigError
from azq.nets.device import cpu_flags, has_bfloat16, pick_device

# Each tensor is larger than all before it, which by default malloc maps anew.
PROGRAM = """
import resource, sys
import torch
from azq.nets.device import keep_freed_memory
kept = sys.argv[1] == "kept" and keep_freed_memory()
if kept:
    torch.ones(7 << 20)  # far more than the tensors below, so that they fit even where small blocks stay among them
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for step in range(20):
    torch.ones((1 << 20) + 4096 * step)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> tuple[bool, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True, timeout=120)
    kept, count = done.stdout.split()
    return bool(int(kept)), int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_tensors_are_used_again_without_the_kernel():
    kept, quiet = page_faults("kept")
    if not kept:
        pytest.skip("malloc is not glibc's")
    _, usual = page_faults("given back")
    assert quiet < usual / 4


def test_cpu_flags_are_read() -> None:
    flags = cpu_flags("processor\t: 0\nflags\t\t: fpu avx512_bf16 sse\nbugs\t: none\n")
    assert flags == {"fpu", "avx512_bf16", "sse"}
    assert has_bfloat16(flags)
    assert has_bfloat16(frozenset({"amx_bf16"}))
    assert not has_bfloat16(cpu_flags("vendor: other"))


@pytest.mark.parametrize(
    ("name", "local", "gpus", "device"),
    [("auto", 0, 1, "cuda:0"), ("cuda", 0, 1, "cuda:0"), ("cuda", 5, 4, "cuda:1"), ("cuda:2", 1, 4, "cuda:2"), ("cpu", 1, 4, "cpu")],
)
def test_a_cuda_device_is_told_with_its_number(monkeypatch: pytest.MonkeyPatch, name: str, local: int, gpus: int, device: str) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.cuda.set_device", taken.append)
    assert pick_device(name, "learner.device", local) == torch.device(device)
    assert taken == ([torch.device(device)] if device != "cpu" else [])


def test_a_device_that_is_not_there_or_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: torch.device) -> None:
        raise RuntimeError("driver too old\nand more")

    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.set_device", fails)
    with pytest.raises(ConfigError, match=r"learner\.device = 'cuda:1' is not on this host"):
        pick_device("cuda:1", "learner.device")
    with pytest.raises(ConfigError, match="'cuda' cannot be used here: driver too old; choose"):
        pick_device("cuda", "learner.device")
