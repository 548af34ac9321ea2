"""A TLS front of a real broker, as `azq up --listen` has it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from waiting import PATIENCE_S

from azq.bus import certificate
from azq.bus.embedded import EmbeddedServer
from azq.config.host import trusting
from azq.errors import BrokerError
from azq.host.fronts import FrontPlan
from azq.wire.connect import connect


class FrontProcess:
    """`azq front` before an embedded server, which it leaves alone."""

    def __init__(self, server: EmbeddedServer, folder: Path, port: int) -> None:
        self.certificate, key = certificate.ensure(folder / "tls", "127.0.0.1")
        self.port = port
        self._plan = FrontPlan("control", f"127.0.0.1:{port}", server.socket, self.certificate, key)
        self._log = folder / f"front-{port}.log"
        self.plain_url = f"rediss://default:{server.password}@127.0.0.1:{port}/0"
        self.url = trusting(self.plain_url, str(self.certificate))
        self.start()

    def start(self) -> None:
        """Returns once it lets clients through."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "azq", *self._plan.arguments]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "AZQ_LOG": "json"}
            )
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while True:
            try:
                connect(self.url).close()
            except BrokerError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the front does not come up: {self.log}") from error
                pause.wait(0.05)
            else:
                return

    @property
    def log(self) -> str:
        """What it said."""
        return self._log.read_text("utf-8")

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Its exit code after SIGTERM."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_S)
