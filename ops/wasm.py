"""Compiles the core to WebAssembly: `python ops/wasm.py` writes azq/web/azq.wasm anew, the same bytes wherever it runs.

`--compiler clang++-14 --target=wasm32-wasi` is the second builder (Debian: clang-14 lld-14 wasi-libc libc++-14-dev-wasm32
libclang-rt-14-dev-wasm32): other bytes that compute the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
WASM = ROOT / "azq" / "web" / "azq.wasm"
FOLDERS = ("azq/core/include", "azq/core/games", "azq/core/wasm", "azq/nets/native")
NATIVE = {"bind.cpp", "cpu.hpp", "peak.cpp", "peak.hpp"}  # of these, what only a native build has
VERSION = "ziglang 0.17.0"  # as in pyproject.toml: another gives other bytes
# The floats of the native build to the last bit: no contraction, no reassociation, no relaxed SIMD.
FLOATS = ["-O3", "-msimd128", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
COMPILE = ["-std=c++20", *FLOATS, "-fno-exceptions", "-fno-rtti", "-DNDEBUG", "-Iazq/core/include", "-Iazq/core", "-Iazq/nets/native"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
ZIG = [sys.executable, "-m", "ziglang", "c++", "-target", "wasm32-wasi", *WARNINGS]
LINK = ["-mexec-model=reactor", "-Wl,-z,stack-size=1048576,--strip-all"]


def sources() -> list[Path]:
    """Every file that is compiled, in one order."""
    return sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.[ch]pp") if file.name not in NATIVE)


def digest() -> str:
    """The sha256 of all sources, with their names and the flags; it stands in the module."""
    whole = hashlib.sha256("\n".join([VERSION, *COMPILE, *LINK]).encode())
    for file in sources():
        whole.update(f"\n{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return whole.hexdigest()


def build(out: Path, compiler: list[str]) -> None:
    """Compiles every source and links them. Raises `CalledProcessError` where the compiler fails."""
    with tempfile.TemporaryDirectory() as folder:
        units = [file for file in sources() if file.suffix == ".cpp"]
        objects = [str(Path(folder) / f"{file.parent.name}-{file.stem}.o") for file in units]
        told = {"exchange.cpp": [f'-DAZQ_SOURCES="{digest()}"']}

        def compiled(unit: Path, made: str) -> None:
            subprocess.run(
                [*compiler, *COMPILE, *told.get(unit.name, ()), "-c", str(unit.relative_to(ROOT)), "-o", made], check=True, cwd=ROOT
            )

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(compiled, units, objects))
        subprocess.run([*compiler, *COMPILE, *LINK, *objects, "-o", str(out)], check=True, cwd=ROOT)


def main() -> None:
    """Reads the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=WASM)
    options.add_argument("--compiler", nargs=argparse.REMAINDER, default=ZIG)
    given = options.parse_args()
    build(given.out.absolute(), given.compiler)
    found = given.out.read_bytes()
    print(f"{given.out}: {len(found):,} bytes, sha256 {hashlib.sha256(found).hexdigest()}")


if __name__ == "__main__":
    main()
