"""Servers as an operator may have set them up: with any options, nothing of azq's in them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from waiting import until

from azq.host.fronts import free_port


@contextlib.contextmanager
def bare_server(program: Path, *options: str) -> Iterator[str]:
    """The URL of a server that runs with these options on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="azq-test-") as folder:
        path = Path(folder) / "s.sock"
        fixed = ["--port", "0", "--unixsocket", str(path), "--dir", folder, "--save", ""]
        if "--cluster-enabled" in options:
            fixed += ["--cluster-port", str(free_port())]  # else all share one
        process = subprocess.Popen([program, *fixed, *options], stdout=subprocess.DEVNULL)
        try:
            until(lambda: _answers(path) or process.poll() is not None, f"an answer of {program}")
            assert process.poll() is None, f"{program} {' '.join(options)} ended at once"
            yield f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def _answers(path: Path) -> bool:
    """Whether the server says anything, be it that it does not want to."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return bool(client.recv(64))
        except OSError:
            return False
