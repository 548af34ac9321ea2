"""A machine with systemd joins a fleet: its services are installed, started and go on after a second join."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from systemd.namespace import Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

AZQ = "/opt/azq/bin/azq"
UP = f"cd /srv && exec {AZQ} up --game tic_tac_toe --run ttt --listen 127.0.0.1 --set daemon.port=0 --set arena.every_s=0 --json"
WORKER, INFERENCE = "azq-worker@selfplay.cpu:selfplay.box", "azq-inference@cpu"
JOIN = (AZQ, "join", "rediss://127.0.0.1:6379/0", "--token-file", "/srv/token", "--tags", "box", "--roles", "selfplay,inference", "-c", "1")


def learns(namespace: Namespace) -> bool:
    answer = namespace.run("sh", "-c", f"cd /srv && {AZQ} ledger --run ttt --json", check=False)
    return bool(answer) and json.loads(answer)["inserted"] > 20


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A booted machine on which `azq up --listen` trains as another machine would."""
    with Namespace(tmp_path_factory.mktemp("systemd")) as namespace:
        namespace.run("systemd-run", "--unit=first", "sh", "-c", UP)
        namespace.until(lambda: learns(namespace), "a run that learns")
        namespace.run("sh", "-c", f"cd /srv && {AZQ} join-token | sed -n 's/^token: //p' > /srv/token")
        yield namespace


def test_one_command_installs_and_starts_the_services(host: Namespace) -> None:
    said = host.run(*JOIN)
    assert "weights    read ttt version" in said
    for unit in (WORKER, INFERENCE):
        assert host.show(unit, "SubState") == "running"
        assert host.run("systemctl", "is-enabled", unit).strip() == "enabled"
    host.until(lambda: "serving ttt" in host.show(INFERENCE, "StatusText"), "weights at the joined evaluator")
    assert "azq-broker" not in host.show("azq.target", "Wants")
    assert host.run("stat", "-c", "%a %U", "/etc/azq/azq.env").split() == ["600", "root"]
    token = host.run("cat", "/srv/token").strip()
    assert token not in host.run("ps", "axww", "-o", "args") + host.run("systemctl", "show", WORKER, INFERENCE) + said


def test_joining_again_starts_nothing_anew_and_another_token_is_refused(host: Namespace) -> None:
    before = {unit: host.show(unit, "MainPID") for unit in (WORKER, INFERENCE)}
    assert "/etc/azq/azq.env is as it should be" in host.run(*JOIN)
    assert {unit: host.show(unit, "MainPID") for unit in before} == before
    refused = host.run("sh", "-c", f"{' '.join(JOIN).replace('/srv/token', '/etc/hostname')} 2>&1", check=False)
    assert "azq join-token" in refused
    assert Path("/etc/azq").exists() is False  # nothing of this left the namespace
