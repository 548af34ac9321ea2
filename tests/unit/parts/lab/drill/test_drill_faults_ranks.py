"""Cutting what two processes tell each other, and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from azq.errors import StateConflict
from azq.parts.lab.drill.faults.ranks import cut

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="takes a process's sockets as Linux lets one")
SERVER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.sendall(b"x" if connection.recv(1) else b"")
    connection.recv(1)
"""
CLIENT = """
import socket, sys
ours, others = (socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:])
assert ours.recv(1) == b""
others.sendall(b"?")
print(others.recv(1), flush=True)
"""


def test_both_ends_of_a_connection_between_two_processes_notice_and_others_hold():
    with socket.create_server(("127.0.0.1", 0)) as ours:
        third = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        assert third.stdout is not None
        ports = [str(ours.getsockname()[1]), third.stdout.readline().strip()]
        other = subprocess.Popen([sys.executable, "-c", CLIENT, *ports], stdout=subprocess.PIPE, text=True)
        try:
            mine, _ = ours.accept()
            with mine:
                with pytest.raises(StateConflict, match="have no connection that could be cut"):
                    cut(os.getpid(), third.pid)
                assert cut(os.getpid(), other.pid) == 1
                assert mine.recv(1) == b""
                said, _ = other.communicate(timeout=60)
            assert said == "b'x'\n"
        finally:
            for process in (third, other):
                process.kill()
                process.communicate()
