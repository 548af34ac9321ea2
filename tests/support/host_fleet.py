"""A fleet on hosts of its own: brokers, daemon and learner on `first`, everything else joins with `azq join`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lan_hosts import Host, lan
from waiting import PATIENCE_S

from azq import metrics
from azq.bus import certificate
from azq.bus.embedded import settings
from azq.bus.redis import RedisBus
from azq.bus.server_program import find_server
from azq.clock import now_ms
from azq.config import parse_run
from azq.errors import BrokerError
from azq.host.fronts import FrontPlan, Listen
from azq.host.join.token import Token
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.ledger.types import JobState, JobView, LedgerCounts
from azq.parts.lab.drill.outcome import Discrepancy, compare
from azq.parts.lab.drill.system import LogReader, read_account
from azq.process.apart import start
from azq.process.start import AZQ
from azq.status.observe import read_workers
from azq.waiting import until
from azq.wire import tls
from azq.wire.connect import open_client, translate
from azq.wire.messages import Heartbeat

PASSWORD = "not-a-secret-of-anybody"  # the brokers are reached in these namespaces alone
PLANES = ("control", "data")
RUN, GAME = "ttt", "tic_tac_toe"
SECTIONS = {
    "run": {"game": GAME},
    "network": {"kind": "mlp", "blocks": 1, "channels": 16},
    "search": {"num_simulations": 16},
    "selfplay": {"games_in_flight": 32, "journal_s": 0.5, "slice_s": 20.0},
    "learner": {"batch_size": 64, "min_window": 256, "publish_every_s": 3.0, "limiter_slack": 10_000_000, "device": "cpu"},
    "arena": {"every_s": 0},
}


class HostFleet:
    """Processes by name; every one logs into a file of its own, which failures name."""

    def __init__(self, hosts: Mapping[str, Host], folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self.token = ""
        self.fronts: dict[str, FrontPlan] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._resent: dict[str, float] = {}
        self.client = open_client(f"unix://:{PASSWORD}@{folder}/control.sock", timeout_s=2.0)
        self.ledger = Ledger(self.client)

    def start_first(self) -> None:
        """Brokers and their fronts, the run, daemon and learner."""
        first = self.hosts["first"]
        listen, env = Listen(first.address, 6379), dict[str, str]()
        files = certificate.ensure(self.folder / "tls", first.address)
        self.token = str(Token(PASSWORD, user="default", fingerprint=tls.fingerprint(files[0].read_text())))
        for place, role in enumerate(PLANES):
            socket = self.folder / f"{role}.sock"
            (self.folder / role).mkdir()
            lines = settings(role, self.folder / role, socket, f"requirepass {PASSWORD}", "256mb")  # type: ignore[arg-type]
            (self.folder / f"{role}.conf").write_text("\n".join(lines) + "\n")
            self.spawn(role, first, [str(find_server()), str(self.folder / f"{role}.conf")])
            self.fronts[role] = FrontPlan(role, f"{listen.host}:{listen.port + place}", socket, *files)
            self.start_front(role)
            env |= {f"AZQ_BROKER__{role.upper()}_URL": f"unix://:{PASSWORD}@{socket}"}
            env |= {f"AZQ_BROKER__PUBLIC_{role.upper()}_URL": listen.url(place)}
        self.until(self._answers, "the control plane")
        self.ledger.create_run(record_of(RUN, parse_run(SECTIONS, "a drill"), self.folder / RUN, now_ms()))
        env |= {"AZQ_STORE__URL": "redis", "AZQ_DAEMON__PORT": "0", "AZQ_DAEMON__LEASE_S": "4"}
        self.spawn("daemon", first, [*AZQ, "daemon"], env)
        self.spawn("learner", first, [*AZQ, "learner", "--run", RUN], env)
        logs = [self.folder / f"front-{role}.log" for role in PLANES]  # whoever joins earlier is refused at once
        self.until(lambda: all("listening" in log.read_text("utf-8") for log in logs), "fronts that listen")

    def start_front(self, role: str) -> None:
        """What the others reach a broker through; once more where it was killed."""
        self.spawn(f"front-{role}", self.hosts["first"], [*AZQ, *self.fronts[role].arguments])

    def join(self, host: str, *arguments: str) -> None:
        """One command on another machine."""
        folder = self.folder / f"at-{host}"
        folder.mkdir(exist_ok=True)
        command = [*AZQ, "join", f"rediss://{self.hosts['first'].address}:6379/0", "--foreground", "--folder", str(folder), *arguments]
        self.spawn(host, self.hosts[host], command, {"AZQ_JOIN_TOKEN": self.token})

    def spawn(self, name: str, host: Host, command: Sequence[str], env: dict[str, str] | None = None) -> None:
        log = self.folder / f"{name}.log"
        self.processes[name] = start(host.command(*command), self.folder, log, {"OMP_NUM_THREADS": "1", **(env or {})})

    def stop(self, *names: str) -> dict[str, int]:
        """Asks processes to end, as Ctrl-C does; their exit codes."""
        for name in names:
            self.processes[name].send_signal(signal.SIGINT)
        return {name: self.processes[name].wait(PATIENCE_S) for name in names}

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.client.close()

    def until(self, condition: Callable[[], Any], what: str, within_s: float = PATIENCE_S) -> Any:
        """The first true answer; names what did not come, and where logs are."""

        def failure() -> str:
            return f"{what} did not come within {within_s:g} s; logs are in {self.folder}\n{self._last_words()}"

        return until(lambda: condition() or None, failure, within_s)

    def counts(self) -> LedgerCounts:
        return self.ledger.counts(RUN)

    def more(self, games: int, what: str, within_s: float = PATIENCE_S) -> LedgerCounts:
        """Waits until so many further games were learned from."""
        before = self.counts().inserted
        self.until(lambda: self.counts().inserted >= before + games, f"{games} games {what}", within_s)
        return self.counts()

    def beats(self, host: str) -> list[Heartbeat]:
        """Living processes of a host."""
        found = read_workers(RedisBus(self.client))
        for beat in found:
            self._resent[beat.worker] = max(self._resent.get(beat.worker, 0.0), beat.rates.get(metrics.RESENT, 0.0))
        return [beat for beat in found if beat.host == host]

    def resent(self) -> int:
        """Evaluations that were asked for again, as far as heartbeats told."""
        self.beats("")
        return int(sum(self._resent.values()))

    def discrepancy(self) -> Discrepancy:
        """Where ledger and disk disagree; read after the end."""
        reader = LogReader(self.folder / RUN / "segments", GAME)
        reader.read()
        return compare(read_account(self.client, RUN), reader.disk())

    def drain(self, *players: str) -> None:
        """Ends players, then all but the brokers and their fronts, once the learner has every finished game."""
        self.stop(*players)
        self.until(lambda: self.counts().in_transit == 0, "the learner's last intake")
        self.stop(*(name for name in self.processes if not name.endswith(PLANES) and name not in players))

    def leased(self, host: str) -> list[JobView]:
        return [view for view in self.ledger.jobs(RUN) if view.state is JobState.LEASED and view.owner.startswith(f"{host}:")]

    def log(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8", "replace")

    def _answers(self) -> bool:
        with contextlib.suppress(BrokerError), translate(self.client):
            return bool(self.client.ping())
        return False

    def _last_words(self) -> str:
        files = sorted(self.folder.glob("**/*.log"))
        return "\n".join(f"== {file.relative_to(self.folder)}\n" + "\n".join(self.log(str(file)).splitlines()[-8:]) for file in files)


@contextlib.contextmanager
def fleet(folder: Path, *names: str) -> Iterator[HostFleet]:
    """A fleet whose first host is up."""
    with lan("first", *names) as hosts, contextlib.closing(HostFleet(hosts, folder)) as found:
        found.start_first()
        yield found
