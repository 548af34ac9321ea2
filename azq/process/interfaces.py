"""By which of its network interfaces, and under which address, this machine reaches another."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_ANY_PORT = 9


def address_towards(host: str) -> str:
    """This machine's address on the way to a host, which may be itself; empty where there is no way."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, _ANY_PORT))  # sends nothing
        return str(probe.getsockname()[0])
    return ""


def interface_towards(host: str) -> str:
    """The network interface by which a host, or this one itself, is reached; empty where that cannot be told."""
    if not (address := address_towards(host)):
        return ""
    ours = socket.inet_aton(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                if fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))[20:24] == ours:
                    return name
    return ""
