"""The units under a real systemd: installed, started, killed, hung and stopped, with the ledger and the journal as witnesses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from systemd.namespace import Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

DAEMON, WORKER, INFERENCE, LEARNER = "azq-daemon", "azq-worker@selfplay.cpu", "azq-inference@cpu", "azq-learner@ttt"
BROKERS = ("azq-broker@control", "azq-broker@data")
#: what a service says of itself when it does its work
AT_WORK = {DAEMON: "reconciling", WORKER: "consuming", INFERENCE: "serving ttt", LEARNER: "learning ttt"}
SELFPLAY = {"games_in_flight": 64, "journal_s": 1.0}
LEARNING = {"limiter_slack": 10_000_000}  # games come however far the learner is behind, which deaths put back
RUN = {"name": "ttt", "sections": {"run": {"game": "tic_tac_toe"}, "selfplay": SELFPLAY, "learner": LEARNING}}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A host with azq installed and the target started, and one run that learns."""
    with Namespace(tmp_path_factory.mktemp("systemd")) as namespace:
        namespace.run("/opt/azq/bin/azq", "systemd", "install")
        namespace.run("systemctl", "start", DAEMON)
        namespace.run("systemctl", "start", "azq.target", WORKER, INFERENCE)
        assert namespace.http("POST", "/v1/runs", RUN)["state"] == "running"
        namespace.run("systemctl", "start", LEARNER)
        namespace.until(lambda: namespace.counted("inserted") > 20, "the first games")
        yield namespace


def at_work(host: Namespace, unit: str) -> bool:
    return host.show(unit, "SubState") == "running" and AT_WORK[unit] in host.show(unit, "StatusText")


def restarted(host: Namespace, unit: str, signal: str) -> None:
    """Sends the signal and waits for a new process that works."""
    host.until(lambda: at_work(host, unit), f"{unit} at work")
    before = host.show(unit, "MainPID")
    host.signal(unit, signal)
    host.until(lambda: host.show(unit, "MainPID") not in (before, "0") and at_work(host, unit), f"{unit} back at work")


def test_the_target_holds_brokers_and_daemon_and_a_second_installation_keeps_the_passwords(host: Namespace) -> None:
    for unit in (*BROKERS, DAEMON, "azq.target"):
        assert host.show(unit, "ActiveState") == "active"
    before = host.run("cat", "/etc/azq/azq.env")
    host.run("/opt/azq/bin/azq", "systemd", "install")
    assert host.run("cat", "/etc/azq/azq.env") == before
    assert host.http("GET", "/readyz")["status"] == "ready"


@pytest.mark.parametrize("unit", [DAEMON, WORKER, INFERENCE, LEARNER, "azq-flower", BROKERS[0]])
def test_services_are_hardened(host: Namespace, unit: str) -> None:
    answer = host.run("systemd-analyze", "security", "--no-pager", f"{unit}.service", check=False)
    exposure = float(answer.strip().splitlines()[-1].split(":")[1].split()[0])
    assert exposure <= 3.0


def test_secrets_stand_in_no_command_line_and_only_services_can_read_them(host: Namespace) -> None:
    password = host.run("cat", "/etc/azq/azq.env").split("unix://:")[1].split("@")[0]
    assert password not in host.run("ps", "axww", "-o", "args")
    assert password not in host.run("systemctl", "show", DAEMON, WORKER, INFERENCE, LEARNER, *BROKERS)
    process = host.show(DAEMON, "MainPID")
    started_with = host.run("sh", "-c", f"tr '\\0' '\\n' < /proc/{process}/environ")
    assert "CREDENTIALS_DIRECTORY=" in started_with
    assert password not in started_with
    assert host.run("stat", "-c", "%a %U", "/etc/azq/azq.env").split() == ["600", "root"]


def test_flower_shows_the_workers_to_those_who_know_the_password(host: Namespace) -> None:
    password = host.run("sed", "-n", "s/^FLOWER_BASIC_AUTH=//p", "/etc/azq/flower.env").strip()
    host.run("systemctl", "start", "azq-flower")
    pages = "http://127.0.0.1:5555/workers"
    host.until(lambda: host.run("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", pages, check=False) == "401", "Flower")
    host.until(lambda: "selfplay.cpu" in host.run("curl", "-s", "-u", password, f"{pages}?json=1", check=False), "the worker in Flower")
    host.run("systemctl", "stop", "azq-flower")


@pytest.mark.parametrize("unit", AT_WORK)
def test_a_killed_service_comes_back_and_no_game_is_lost(host: Namespace, unit: str) -> None:
    restarted(host, unit, "KILL")
    before = host.counted("inserted")
    host.until(lambda: host.counted("inserted") > before, "further games")
    ledger = host.http("GET", "/v1/runs/ttt/ledger")
    assert ledger["balanced"]
    assert ledger["abandoned"] == 0
    assert any("Main process exited, code=killed, status=9/KILL" in line for line in host.messages(unit))


@pytest.mark.parametrize("unit", BROKERS)
def test_a_killed_broker_comes_back_and_others_keep_their_processes(host: Namespace, unit: str) -> None:
    others = {other: host.show(other, "MainPID") for other in (WORKER, LEARNER)}
    host.signal(unit, "KILL")
    host.until(lambda: host.show(unit, "SubState") == "running" and host.http("GET", "/readyz"), "the broker")
    before = host.counted("inserted")
    host.until(lambda: host.counted("inserted") > before, "further games")
    assert {other: host.show(other, "MainPID") for other in others} == others


def test_services_that_boot_before_their_broker_wait_for_it(host: Namespace) -> None:
    units = (WORKER, INFERENCE, LEARNER)  # the daemon wants its broker started
    host.run("systemctl", "stop", *BROKERS)
    for unit in units:
        host.signal(unit, "KILL")
    for unit in units:
        host.until(lambda unit=unit: "waiting for the broker" in host.show(unit, "StatusText"), f"{unit} to wait")
    waiting = {unit: host.show(unit, "MainPID") for unit in units}
    host.run("systemctl", "start", *BROKERS)
    for unit in units:
        host.until(lambda unit=unit: at_work(host, unit), f"{unit} at work")
    assert {unit: host.show(unit, "MainPID") for unit in units} == waiting  # not one start was spent


def test_a_hung_service_is_noticed_by_the_watchdog(host: Namespace) -> None:
    restarted(host, WORKER, "STOP")
    assert any("Watchdog timeout" in line for line in host.messages(WORKER))


def test_the_journal_gets_structured_lines(host: Namespace) -> None:
    entries = host.journal(LEARNER)
    own = [json.loads(entry["MESSAGE"]) for entry in entries if entry["MESSAGE"].startswith("{")]
    assert {"weights_published", "learner_opened"} <= {line["event"] for line in own}


def test_a_wrong_setting_ends_a_service_for_good_with_its_name_in_the_journal(host: Namespace) -> None:
    host.run("systemctl", "start", "azq-learner@nobody", check=False)
    host.until(lambda: host.show("azq-learner@nobody", "ActiveState") == "failed", "the failure")
    assert host.show("azq-learner@nobody", "NRestarts") == "0"
    assert any("nobody" in line and "azq" in line for line in host.messages("azq-learner@nobody"))


def test_stopping_the_target_drains_everything_and_a_start_goes_on(host: Namespace) -> None:
    before = host.counted("inserted")
    host.run("systemctl", "stop", "azq.target")
    for unit in (*AT_WORK, *BROKERS):  # systemctl waits for the target itself, not for all that is part of it
        host.until(lambda unit=unit: host.show(unit, "ActiveState") == "inactive", f"the end of {unit}")
        assert host.show(unit, "Result") == "success", unit
    host.run("systemctl", "start", "azq.target", WORKER, INFERENCE, LEARNER)
    host.until(lambda: host.counted("inserted") > before, "games of the run that went on")
    assert host.http("GET", "/v1/runs/ttt/ledger")["balanced"]
    assert Path("/etc/azq").exists() is False  # nothing of this left the namespace
