"""Several data brokers as units: installed and started together, one killed while a run trains, and one more added."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from systemd.namespace import Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

AZQ = "/opt/azq/bin/azq"
SERVICES = ("azq-daemon", "azq-worker@selfplay.cpu", "azq-inference@cpu", "azq-learner@ttt")
SECTIONS = {"run": {"game": "tic_tac_toe"}, "selfplay": {"games_in_flight": 64, "journal_s": 1.0, "cache_entries": 0}}


def brokers(count: int) -> list[str]:
    return ["azq-broker@control", "azq-broker@data", *(f"azq-broker@data{number}" for number in range(1, count))]


def up(host: Namespace) -> dict[str, bool]:
    """The planes that the daemon's figures tell of."""
    lines = host.ask_daemon("/metrics").splitlines()
    told = [line.removeprefix('azq_broker_up{plane="').split('"} ') for line in lines if line.startswith("azq_broker_up{")]
    return {plane: float(value) == 1.0 for plane, value in told}


def ask(host: Namespace, command: str) -> str:
    """What a command of root's says of this host's fleet."""
    return host.run("env", "CREDENTIALS_DIRECTORY=/etc/azq", AZQ, command, "--config", "/etc/azq/azq.toml", check=False)


def more_games(host: Namespace) -> None:
    before = host.counted("inserted")
    host.until(lambda: host.counted("inserted") > before + 20, "further games")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A host with two data brokers and a run that learns."""
    with Namespace(tmp_path_factory.mktemp("systemd")) as namespace:
        namespace.run(AZQ, "systemd", "install", "--data-shards", "2")
        namespace.run("systemctl", "start", "azq.target", *SERVICES[:3])
        namespace.until(lambda: namespace.http("GET", "/readyz"), "the daemon")
        assert namespace.http("POST", "/v1/runs", {"name": "ttt", "sections": SECTIONS})["state"] == "running"
        namespace.run("systemctl", "start", SERVICES[3])
        namespace.until(lambda: namespace.counted("inserted") > 20, "the first games")
        yield namespace


def test_the_target_starts_every_broker_and_all_are_told_of(host: Namespace) -> None:
    for unit in brokers(2):
        assert host.show(unit, "SubState") == "running", unit
    assert up(host) == {"control": True, "data": True, "data1": True}
    told = ask(host, "status")
    assert "data1 " in told
    assert "does not answer" not in told
    assert "fail" not in ask(host, "doctor")


def test_a_killed_data_broker_comes_back_and_nothing_is_lost(host: Namespace) -> None:
    others = {unit: host.show(unit, "MainPID") for unit in (*brokers(1), *SERVICES)}
    before = host.show("azq-broker@data1", "MainPID")
    host.signal("azq-broker@data1", "KILL")
    host.until(lambda: host.show("azq-broker@data1", "MainPID") not in (before, "0"), "the broker's next process")
    host.until(lambda: up(host).get("data1"), "the broker's answer")
    more_games(host)
    assert {unit: host.show(unit, "MainPID") for unit in others} == others
    ledger = host.http("GET", "/v1/runs/ttt/ledger")
    assert ledger["balanced"]
    assert ledger["abandoned"] == 0


def test_a_stopped_data_broker_is_named_while_the_other_carries_the_run(host: Namespace) -> None:
    host.run("systemctl", "stop", "azq-broker@data1")
    host.until(lambda: up(host).get("data1") is False, "the figure of a broker that is away")
    assert "data1 does not answer" in ask(host, "status")
    assert [line.split()[1] for line in ask(host, "doctor").splitlines() if line.startswith("fail")] == ["data1"]
    more_games(host)
    host.run("systemctl", "start", "azq-broker@data1")
    host.until(lambda: all(up(host).values()), "the broker's return")


def test_one_more_broker_is_installed_over_a_run_that_goes_on(host: Namespace) -> None:
    host.run("sed", "-i", "s/data_shards = 2/data_shards = 3/", "/etc/azq/azq.toml")
    said = host.run(AZQ, "systemd", "install")
    assert "systemctl restart azq.target" in said
    host.run("systemctl", "restart", "azq.target", timeout_s=120.0)
    host.until(lambda: host.show("azq-broker@data2", "SubState") == "running", "the third broker")
    host.until(lambda: list(up(host).values()) == [True] * 4, "the figures of all brokers")
    host.until(lambda: all(host.show(unit, "SubState") == "running" for unit in SERVICES), "every service")
    more_games(host)
    assert host.http("GET", "/v1/runs/ttt/ledger")["balanced"]
