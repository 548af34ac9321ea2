"""A run that volunteers play for, with a real gateway process, tabs in threads, and what of a daemon a gateway needs."""

from __future__ import annotations

import subprocess
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from match_tabs import MatchTab
from simulated_tab import SimulatedTab
from waiting import PATIENCE_S, until
from websockets.sync.client import ClientConnection
from worker_doubles import RUN, Fleet

from azq.config import VolunteersConfig
from azq.errors import AzqError
from azq.host.fronts import free_port
from azq.ledger.types import JobState
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.kinds import BROWSER, Kind
from azq.wire.messages import Job, MatchResult, MatchSpec
from azq.wire.tabs import from_gateway


class Hall(Fleet):
    """A gateway and its tabs."""

    def __init__(self, broker: Any, tmp_path: Path, patience: dict[str, float] | None = None, **gateway: float) -> None:
        super().__init__(broker, tmp_path)
        self.port = free_port()
        self._patience = {"silent_s": 30.0, "late_s": 8.0, "batch_s": 1.0, **(patience or {})}
        self._env["AZQ_GATEWAY__PORT"] = str(self.port)
        self._env |= {f"AZQ_GATEWAY__{name.upper()}": str(value) for name, value in gateway.items()}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._tend, daemon=True)]

    def open(self, *, slice_s: float = 300.0, matches: bool = False, **selfplay: Any) -> None:
        """Makes the run, and jobs of it from now on."""
        volunteers = VolunteersConfig(kinds=("selfplay", "eval") if matches else ("selfplay",), slice_s=slice_s)
        self.create_run(volunteers=volunteers, **selfplay)
        self._threads[0].start()

    def start_gateway(self) -> subprocess.Popen[bytes]:
        patient = f"from azq.parts.volunteers import gateway; gateway.PATIENCE = gateway.TabPatience(**{self._patience!r}); "
        process = self._spawn(
            patient + "import sys; from azq.config import load; from azq.parts.volunteers.main import main; sys.exit(main(load()))"
        )
        until(lambda: self.get("/healthz") or process.poll() is not None, "gateway")
        assert process.poll() is None, self.log()
        return process

    def get(self, path: str) -> bytes:
        """What the gateway answers; nothing while it is away."""
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_S) as answer:
            return bytes(answer.read())
        return b""

    def tab(self, **settings: Any) -> SimulatedTab:
        return MatchTab(f"ws://127.0.0.1:{self.port}", **settings)

    def live(self, tab: SimulatedTab, done: Callable[[SimulatedTab], bool] = lambda tab: False) -> SimulatedTab:
        """Has a tab play in a thread until `done(tab)`, or the end of the test."""
        thread = threading.Thread(target=tab.live, args=(lambda tab: self._over.is_set() or done(tab),), daemon=True)
        thread.start()
        self._threads.append(thread)
        return tab

    def ask_match(self, first: str = "weights:1", second: str = "weights:2", games: int = 12) -> str:
        """A match for tabs; its job."""
        spec = MatchSpec(first, second, games, 16, 2, 5)
        job = Job("", RUN, Kind.EVAL, BROWSER, games=games, payload=encode(spec))
        return self.ledger.enqueue(job).job.job_id

    def results(self) -> list[MatchResult]:
        """Of all matches that ended."""
        return [decode(entry.frame, MatchResult) for entry in self.bus.after(keys.results(RUN), "0", count=1000)]

    def opened(self) -> int:
        return self.ledger.counts(RUN).opened

    def settle(self) -> None:
        """Ends tabs and jobs, so that all that is open lies in the pool."""
        self._end_threads()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(PATIENCE_S)

    def close(self) -> None:
        self._end_threads()
        super().close()

    def _end_threads(self) -> None:
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(PATIENCE_S)

    def _tend(self) -> None:
        """What the daemon does for it: leases that ran out and two jobs, one of them ahead."""
        while not self._over.wait(0.1):
            with suppress(AzqError):
                self.ledger.expire(RUN, 1000)
                jobs = self.ledger.jobs(RUN)
                for view in jobs:
                    if view.state is JobState.QUEUED and not view.published_ms:
                        self.publish(view)
                if sum(view.job.kind is Kind.SELFPLAY for view in jobs) < 2:
                    self.publish(self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, BROWSER)))


def heard(socket: ClientConnection, kind: Any, within_s: float = PATIENCE_S) -> Any:
    """The next message of a kind that a gateway sends a tab."""
    while True:
        frame = socket.recv(within_s)
        assert isinstance(frame, bytes)
        message = from_gateway(frame)
        if isinstance(message, kind):
            return message
