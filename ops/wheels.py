"""Builds azq's wheels for Linux: `python ops/wheels.py [x86_64] [aarch64] --out dist`, with the Python that runs this.

zig's clang, pinned, compiles against glibc 2.28 and brings its own C++ library, so that a wheel runs on every Linux since 2018
(manylinux_2_28) whatever it was built on, and no ARM machine is needed for aarch64. Python 3.11 makes a wheel for 3.11 alone, 3.12 and
later make one for all from 3.12 on (the stable ABI). auditwheel reads what came out and refuses a wheel that asks for more.
Headers are those of the Python that runs this, the same on both machines but in Debian's packages: `--headers` names others.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "ops" / "locks"
GLIBC = "2.28"
BUILDERS = ("scikit-build-core", "nanobind", "cmake", "ninja", "packaging", "pathspec")  # of constraints.txt
HELD = (  # by every wheel, besides its modules
    "azq/presets/connect_four.toml",
    "azq/pretrained/tic_tac_toe.safetensors",
    "azq/web/azq.wasm",
    "azq/ledger/lua/games.lua",
    "daemon/page/run.js",
    "systemd/azq-daemon.service",
    "ops/drills/selfplay-kill.toml",
)
MODULES = 3
MACHINE_NUMBERS = {"x86_64": 62, "aarch64": 183}  # of ELF
# What zig calls otherwise than GCC: names of CPUs.
WRAPPER = """#!/bin/sh
for word do
    shift
    [ "$word" = -march=x86-64-v2 ] && word=-march=x86_64_v2
    set -- "$@" "$word"
done
exec "{python}" -m ziglang {language} -target {machine}-linux-gnu.{glibc} "$@"
"""
TOOLCHAIN = """set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {machine})
"""


def pinned(names: tuple[str, ...], lock: str) -> str:
    """The entries of a lock that have these names, with their hashes. Pure."""
    entries = re.split(r"\n(?=\S)", lock)
    return "\n".join(entry for entry in entries if re.split(r"[=<>\[ ;]", entry, maxsplit=1)[0] in names) + "\n"


def environment(folder: Path) -> Path:
    """The Python of an environment with the compiler and the builders, nothing of which lacks its hash; made once."""
    python = folder / "bin" / "python"
    if not (folder / ".whole").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        wanted = folder / "builders.txt"
        wanted.write_text(pinned(BUILDERS, (ROOT / "constraints.txt").read_text("utf-8")), "utf-8")
        for lock in (LOCKS / "pip.txt", LOCKS / "wheels.txt", wanted):
            subprocess.run([python, "-m", "pip", "install", "-q", "--require-hashes", "--no-deps", "-r", lock], check=True)
        (folder / ".whole").touch()
    return python


def settings(machine: str, tools: Path, python: Path) -> dict[str, str]:
    """The environment in which a wheel for this machine is built; writes the compilers' wrappers into `tools`."""
    compilers = {}
    for variable, language in {"CC": "cc", "CXX": "c++"}.items():
        wrapper = tools / f"{machine}-{language}"
        wrapper.write_text(WRAPPER.format(python=python, language=language, machine=machine, glibc=GLIBC), "utf-8")
        wrapper.chmod(0o755)
        compilers[variable] = str(wrapper)
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    return {
        **os.environ,
        **compilers,
        "CXXFLAGS": "-include cstdio",  # nanobind's headers name `stderr`, and the stable ABI's Python.h brings it no more
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(ROOT / "build" / "zig")),
        "_PYTHON_HOST_PLATFORM": f"manylinux_{GLIBC.replace('.', '_')}_{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{machine}-linux-gnu.so",
    }


def build(machine: str, out: Path, python: Path, headers: Path | None = None) -> Path:
    """One wheel, checked. Raises `CalledProcessError` where it does not compile, `SystemExit` where it is not what its name says."""
    place = ROOT / "build" / "wheels" / f"{sys.implementation.cache_tag}-{machine}"
    tools = place / "tools"  # CMake remembers where they are
    tools.mkdir(parents=True, exist_ok=True)
    defines = {"Python_INCLUDE_DIR": headers} if headers else {}
    if machine != platform.machine():
        defines["CMAKE_TOOLCHAIN_FILE"] = tools / "toolchain.cmake"
        defines["CMAKE_TOOLCHAIN_FILE"].write_text(TOOLCHAIN.format(machine=machine), "utf-8")
    told = [word for name, value in defines.items() for word in ("-C", f"cmake.define.{name}={value}")]
    flags = ("--no-build-isolation", "--no-deps", "-C", f"build-dir={place / 'cmake'}", *told)
    with tempfile.TemporaryDirectory() as made:
        command: list[str | Path] = [python, "-m", "pip", "wheel", "-q", ".", "-w", made, *flags]
        subprocess.run(command, cwd=ROOT, env=settings(machine, tools, python), check=True)
        (wheel,) = Path(made).glob("*.whl")
        check(wheel, machine, python)
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, out))


def suits(told: str, machine: str) -> bool:
    """Whether auditwheel's words allow a wheel on every such machine with glibc `GLIBC`. Pure."""
    found = re.search(rf'platform tag: "manylinux_2_(\d+)_{machine}"', " ".join(told.split()))
    return found is not None and int(found[1]) <= int(GLIBC.partition(".")[2])


def check(wheel: Path, machine: str, python: Path) -> None:
    """Raises `SystemExit` where the platform is too new, a file is missing, or a module is another machine's."""
    told = subprocess.run([python, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
    if not suits(told, machine):
        raise SystemExit(f"{wheel.name} asks for more than glibc {GLIBC} on {machine}:\n{told}")
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        modules = [name for name in names if name.endswith(".so")]
        for name in modules:
            if int.from_bytes(files.read(name)[18:20], "little") != MACHINE_NUMBERS[machine]:
                raise SystemExit(f"{wheel.name}: {name} is not for {machine}")
    lacking = [ending for ending in HELD if not any(name.endswith(ending) for name in names)]
    if lacking or len(modules) != MODULES:
        raise SystemExit(f"{wheel.name} lacks {lacking or 'modules'}; it has {modules}")


def main() -> None:
    """Reads the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("machines", nargs="*", default=["x86_64"], metavar="|".join(MACHINE_NUMBERS))
    options.add_argument("--out", type=Path, default=ROOT / "dist")
    options.add_argument("--headers", type=Path, help="of Python, in place of those of the Python that runs this")
    given = options.parse_args()
    if unknown := set(given.machines) - MACHINE_NUMBERS.keys():
        raise SystemExit(f"no machine {', '.join(sorted(unknown))}; there are: {', '.join(MACHINE_NUMBERS)}")
    python = environment(ROOT / "build" / "wheels" / f"{sys.implementation.cache_tag}-env")
    for machine in given.machines:
        wheel = build(machine, given.out.absolute(), python, given.headers)
        print(f"{wheel}: {wheel.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
