"""A drill and a validation beside a live system: its brokers hear nothing of them, and live on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.config import Config, RunSections
from azq.host.brokers import with_urls
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.parts.lab.drill.faults.brokers import limit_memory
from azq.parts.lab.drill.system import System
from azq.process.kin import Kin, NoVictim
from azq.process.start import AZQ
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat, Job

COMMANDS = ("drill run broker-control-kill --json", "validate --iterations 1 --kill --json")


@dataclass(frozen=True)
class Live:
    """A live system, as far as others see it: brokers with a run of the drill's own name, its jobs and a worker's heartbeat."""

    servers: tuple[EmbeddedServer, ...]
    clients: tuple[redis.Redis, ...]

    def kept(self) -> list[Any]:
        """Who serves, since when, how it is set, and every key with every byte of its value."""
        return [self._kept(server, client) for server, client in zip(self.servers, self.clients, strict=True)]

    def _kept(self, server: EmbeddedServer, client: redis.Redis) -> Any:
        values = {key: client.dump(key) for key in sorted(client.keys("*"))}
        return server.pid, psutil.Process(server.pid).create_time(), client.config_get("*"), values

    def connections(self) -> list[int]:
        """How many there ever were."""
        return [client.info()["total_connections_received"] for client in self.clients]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    servers = (EmbeddedServer("control", tmp_path / "control"), EmbeddedServer("data", tmp_path / "data"))
    try:
        for server in servers:
            server.start()
        clients = tuple(connect(server.url) for server in servers)
        ledger, bus = Ledger(clients[0]), RedisBus(clients[0])
        for run in ("drill", "ttt"):
            ledger.create_run(record_of(run, RunSections(), tmp_path / "runs" / run, 1, {}))
            ledger.enqueue(Job("", run, Kind.SELFPLAY, "cpu"))
        beat = Heartbeat("selfplay", "w", "h", servers[0].pid, "0", 1, 1, 1, run="drill", weight_versions={"drill": 7})
        clients[0].hset("worker-of-the-test", "w", encode(beat))
        bus.publish(keys.eval_stream("drill"), b"x")
        yield Live(servers, clients)
    finally:
        for server in servers:
            server.stop()


def test_a_broker_that_is_none_of_the_drills_own_gets_no_signal_and_no_command(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, before = System(tmp_path / "drill", "tic_tac_toe", []), live.kept()
    monkeypatch.setattr(system, "config", lambda: with_urls(Config(), *(server.url for server in live.servers)))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as up:
        monkeypatch.setattr(system, "_kin", Kin.of(up.pid))
        pid = live.servers[0].pid
        for deed in (lambda: system.working("broker-control"), system.counts, lambda: limit_memory(system, "control")):
            with pytest.raises(NoVictim, match=f"pid {pid}, taken for broker-control, does not descend from this drill's azq up"):
                deed()
        up.kill()
    assert live.kept() == before


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_live_system_is_as_it_was_byte_for_byte(live: Live, tmp_path: Path, command: str) -> None:
    folder = tmp_path / "operator"
    folder.mkdir()
    settings = [
        f'home = "{tmp_path}/runs"',
        "[broker]",
        *(f'{server}_url = "{live.servers[n].url}"' for n, server in enumerate(("control", "data"))),
    ]
    (folder / "azq.toml").write_text("\n".join(settings))
    before = live.kept(), live.connections()
    done = subprocess.run([*AZQ, *command.split()], cwd=folder, capture_output=True, text=True, check=False, timeout=500)
    assert (live.kept(), live.connections()) == before
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)
    assert [path.name for path in folder.iterdir()] == ["azq.toml"]
