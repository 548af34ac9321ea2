"""What drills make around a system: hosts on one machine, a small disk, a provider's instance metadata.

Hosts are network namespaces on one switch whose cables can be pulled; a disk is a file system in memory that a process and its children
alone see. Nothing touches the machine's own network: even the switch is a namespace. Needs root, `ip` and `mount`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from azq.errors import MissingExtra
from azq.host.machine_end import ACTION, TOKEN, TOKEN_HEADER, TOKEN_LIFE
from azq.process.proc import alive

NETWORK = "10.213.47"  # seen inside only
LONGEST_END_S = 5.0
_INTERFACE = "eth0"
_OURS = re.compile(r"azq(\d+)-[a-z0-9]+")


def why_not() -> str:
    """Why there can be no such hosts here; empty where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [program for program in ("ip", "unshare", "hostname") if shutil.which(program) is None]:
        return f"the program {missing[0]} is not installed (iproute2, util-linux, hostname)"
    done = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"the kernel refuses namespaces: {done.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with an address, and a host name for the processes started there."""

    name: str
    address: str
    space: str
    switch: str

    def command(self, *command: str) -> list[str]:
        """A command as it runs there: in the process that is started, not below it, so that signals reach it."""
        named = ("sh", "-c", 'hostname "$0" && exec "$@"', self.name)
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", *named, *command]

    def cut(self) -> None:
        """Pulls its cable: nothing arrives any more, and nobody is told so."""
        _ip("-n", self.switch, "link", "set", "dev", self.name, "down")

    def heal(self) -> None:
        """Puts the cable back."""
        _ip("-n", self.switch, "link", "set", "dev", self.name, "up")


@contextlib.contextmanager
def lan(*names: str) -> Iterator[dict[str, Host]]:
    """Hosts by name, on one switch; everything in them ends with the block. Raises `MissingExtra` where there can be none."""
    if reason := why_not():
        raise MissingExtra(f"no hosts can be made here: {reason}")
    sweep()
    prefix = f"azq{os.getpid()}-"
    switch = f"{prefix}switch"
    hosts = {name: Host(name, f"{NETWORK}.{number}", f"{prefix}{name}", switch) for number, name in enumerate(names, 1)}
    try:
        _lay(switch, hosts.values())
        yield hosts
    finally:
        for space in (switch, *(host.space for host in hosts.values())):
            _remove(space)


def _lay(switch: str, hosts: Iterable[Host]) -> None:
    _ip("netns", "add", switch)
    _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
    _ip("-n", switch, "link", "set", "dev", "bridge", "up")
    for host in hosts:
        _ip("netns", "add", host.space)
        _ip("-n", host.space, "link", "add", _INTERFACE, "type", "veth", "peer", "name", host.name, "netns", switch)
        _ip("-n", switch, "link", "set", "dev", host.name, "master", "bridge", "up")
        _ip("-n", host.space, "address", "add", f"{host.address}/24", "dev", _INTERFACE)
        for interface in ("lo", _INTERFACE):
            _ip("-n", host.space, "link", "set", "dev", interface, "up")


def sweep() -> None:
    """Removes namespaces of processes that died before they could."""
    for path in list(Path("/run/netns").glob("azq*")):
        found = _OURS.fullmatch(path.name)
        if found and not alive(int(found.group(1))):
            _remove(path.name)


def _remove(space: str) -> None:
    """Ends what runs in a namespace, then deletes it; one that is gone is passed over."""
    if not Path("/run/netns", space).exists():
        return
    deadline = time.monotonic() + LONGEST_END_S
    while (pids := _ip("netns", "pids", space).split()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        threading.Event().wait(0.05)
    _ip("netns", "delete", space)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingExtra(
            f"`ip {' '.join(words)}` failed: {done.stderr.strip()}; hosts in namespaces need root and a kernel that has them"
        )
    return done.stdout


SIZE = "192m"
CHUNKS = (1 << 20, 4096)  # bytes; a page is the least that is given out
FILLER = "filler"
_CLONE_NEWNS = 0x20000


def no_disk() -> str:
    """Why there can be none here; empty where there can."""
    if os.geteuid() != 0:
        return "a mount needs root"
    try:
        done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "the program unshare is not installed (util-linux)"
    return "" if done.returncode == 0 else f"the kernel refuses a mount: {done.stderr.strip()}"


@contextlib.contextmanager
def small_disk(folder: Path, size: str = SIZE) -> Iterator[None]:
    """An empty folder is a disk for the length of a block, and has its files afterwards. Raises `MissingExtra` where there can be none."""
    if reason := no_disk():
        raise MissingExtra(f"no disk can be made here: {reason}")
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        aside = folder.with_name(f"{folder.name}-files")
        _run("cp", "-a", str(folder), str(aside))
        _run("umount", "--lazy", str(folder))
        aside.rename(folder)


def fill(folder: Path) -> None:
    """Leaves its disk no page; to be called again, as what is deleted gives room."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        for size in CHUNKS:
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Metadata(ThreadingHTTPServer):
    """Answers as AWS's version 2 does: a token for a PUT, and what is announced for a GET with that token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.token = secrets.token_hex(8)
        self.announced: dict[str, str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def announce(self, action: str = "terminate", time: str = "2026-01-13T12:00:00Z") -> None:
        self.announced = {"action": action, "time": time}

    def renew(self) -> None:
        """Earlier tokens count no more."""
        self.token = secrets.token_hex(8)


class _Answer(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        known = self.path == TOKEN and self.headers.get(TOKEN_LIFE, "").isdigit()
        self._answer(200 if known else 400, self.server.token if known else "")

    def do_GET(self) -> None:
        if self.headers.get(TOKEN_HEADER) != self.server.token:
            self._answer(401)
        elif self.path != ACTION or self.server.announced is None:
            self._answer(404)
        else:
            self._answer(200, json.dumps(self.server.announced))

    def _answer(self, status: int, text: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def metadata() -> Iterator[Metadata]:
    """Serves for the length of a block."""
    with Metadata() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="metadata", daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
