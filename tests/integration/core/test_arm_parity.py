"""The forward pass compiled for ARM, run by an emulator: the bits of every other CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nodejs import SUPPORT
from whole_networks import GOLDEN, hash_of, write_whole

ROOT = SUPPORT.parents[1]
NATIVE = ROOT / "azq" / "nets" / "native"
FLAGS = ("-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")  # as CMake compiles it
SOURCES = (NATIVE / "description.cpp", NATIVE / "forward.cpp", SUPPORT / "evaluate_networks.cpp")


@pytest.mark.slow
def test_networks_on_arm_evaluate_to_the_golden_bits(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="ziglang is not installed; `make wasm` installs it")
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if not emulator:
        pytest.skip("no emulator of ARM; on Debian: apt-get install qemu-user-static")
    program = tmp_path / "evaluate"
    compiler = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-musl", "-static"]
    folders = [f"-I{NATIVE}", f"-I{ROOT / 'azq' / 'core' / 'include'}"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(ROOT / "build" / "zig")}
    subprocess.run([*compiler, *FLAGS, *folders, *map(str, SOURCES), "-o", str(program)], check=True, env=environment)
    write_whole(tmp_path)

    def hash_on_arm(name: str) -> str:
        files = [str(tmp_path / f"{name}.{suffix}") for suffix in ("whole", "positions")]
        done = subprocess.run([emulator, str(program), *files], check=True, capture_output=True)
        return hash_of([np.frombuffer(done.stdout, np.float16)])

    assert {name: hash_on_arm(name) for name in GOLDEN} == GOLDEN
