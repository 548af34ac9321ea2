"""Hosts on one machine: network namespaces on one switch whose cables can be pulled; needs root and `ip`.

Nothing touches the machine's own network: even the switch is a namespace.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path

from azq.errors import MissingExtra
from azq.process.proc import alive

NETWORK = "10.213.47"  # seen inside only
LONGEST_END_S = 5.0
_INTERFACE = "eth0"
_OURS = re.compile(r"azq(\d+)-[0-9a-f]+-[a-z0-9]+")


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
    prefix = f"azq{os.getpid()}-{secrets.token_hex(3)}-"  # a test may have several networks
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
