"""Memory that a computing process keeps."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each tensor is larger than all before it, which by default malloc maps anew.
PROGRAM = """
import resource, sys
import torch
from azq.nets.process import keep_freed_memory
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
