"""The line of a command names who ran it, be it a user without a name."""

from __future__ import annotations

import os
import pwd
import socket

import pytest

from azq.bus.memory import MemoryBus
from azq.status.audit import line_of, write_command
from azq.wire import keys


def test_a_user_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    bus = MemoryBus()
    write_command(bus, "azq up", "r")
    (line,) = map(line_of, bus.after(keys.AUDIT, "0"))
    assert line is not None
    assert line.who == f"{os.getuid()}@{socket.gethostname()}"
