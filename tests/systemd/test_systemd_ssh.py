"""What `azq cluster render --target ssh` writes makes a host with systemd a machine of its cluster: it trains, and leaves."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from systemd.namespace import SCRIPT, Namespace, why_not

from azq.parts.cluster.description import cluster_of
from azq.parts.cluster.targets.files import write
from azq.parts.cluster.targets.registry import render

REASON = why_not()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

WORKER = "azq-worker@selfplay.cpu"
RUN = {
    "game": "tic_tac_toe",
    "name": "ttt",
    "settings": ["selfplay.evaluator=uniform", "arena.every_s=0", "network.blocks=1", "network.channels=8", "learner.min_window=50"],
}
ROLES = ["broker", "daemon", "learner", "inference", "selfplay", "eval"]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    namespace = Namespace(tmp_path_factory.mktemp("systemd"))
    yield namespace
    namespace.halt()


def test_a_host_is_installed_once_trains_and_leaves(host: Namespace, tmp_path: Path) -> None:
    inside = ["bash", str(SCRIPT), "exec", str(host._state), "--", "sh", "-c", "{command}"]
    cluster = cluster_of(
        {
            "cluster": {"name": "one"},
            "kinds": {"box": {"per_hour": 0.1, "vcpus": 2}},
            "machines": {"head": {"kind": "box", "roles": ROLES, "hosts": ["127.0.0.1"], "concurrency": 1}},
            "budget": {"hours": 5.0},
            "run": RUN,
            "ssh": {"command": inside, "azq": ["/opt/azq/bin/azq"]},
        },
        "one.toml",
    )
    write(render(cluster, "ssh"), "ssh", tmp_path / "out")

    def call(script: str) -> str:
        done = subprocess.run([tmp_path / "out" / script], capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert call("install.sh") == "head: keeps brokers and daemon\n"
    host.until(lambda: (host.http("GET", "/v1/runs/ttt/ledger") or {}).get("inserted", 0) > 20, "games that were trained on")
    for unit in (WORKER, "azq-learner@ttt", "azq-machine", "azq-deadman.timer"):
        assert host.run("systemctl", "is-enabled", unit).strip() == "enabled", unit
    before = host.show(WORKER, "MainPID")
    assert call("install.sh") == "head: is there\n"
    assert host.show(WORKER, "MainPID") == before
    assert call("remove.sh") == "head: has left\n"
    assert host.show("azq-broker@control", "ActiveState") == "inactive"
    assert call("install.sh") == "head: keeps brokers and daemon\n"
    stored = host.until(lambda: (host.http("GET", "/v1/runs/ttt/ledger") or {}).get("inserted", 0), "the run")
    host.until(lambda: (host.http("GET", "/v1/runs/ttt/ledger") or {}).get("inserted", 0) > stored, "further games")
