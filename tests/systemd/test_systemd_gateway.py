"""The gateway's unit under a real systemd: tabs play through it; it is hardened, comes back after a death or a hang, gives games back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from systemd.namespace import Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

GATEWAY = "azq-gateway"
TAB = Path(__file__).parents[1] / "support" / "simulated_tab.py"
RUN = {
    "name": "ttt",
    "sections": {
        "run": {"game": "tic_tac_toe", "tag": "browser"},
        "selfplay": {"evaluator": "uniform"},
        "search": {"num_simulations": 32},
        "volunteers": {"kinds": ["selfplay"]},
    },
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A host with azq installed and a gateway started, and one tab that plays."""
    with Namespace(tmp_path_factory.mktemp("systemd")) as namespace:
        namespace.run("/opt/azq/bin/azq", "systemd", "install")
        namespace.run("systemctl", "start", "azq-daemon", "azq.target", GATEWAY)
        assert namespace.http("POST", "/v1/runs", RUN)["state"] == "running"
        namespace.run("systemd-run", "--unit", "tab", "/opt/azq/bin/python3", str(TAB), "ws://127.0.0.1:8090")
        namespace.until(lambda: namespace.counted("finished") > 20, "the first games")
        yield namespace


def test_a_tab_plays_through_the_unit_which_says_so(host: Namespace) -> None:
    assert host.show(GATEWAY, "ActiveState") == "active"
    assert host.show(GATEWAY, "StatusText") == "serving 1 tabs"
    assert host.run("curl", "-s", "http://127.0.0.1:8090/healthz") == "ok\n"
    assert "text/html" in host.run("curl", "-sI", "-X", "GET", "http://127.0.0.1:8090/web/contribute/")


def test_it_is_hardened_and_tells_no_password(host: Namespace) -> None:
    answer = host.run("systemd-analyze", "security", "--no-pager", f"{GATEWAY}.service", check=False)
    assert float(answer.strip().splitlines()[-1].split(":")[1].split()[0]) <= 3.0
    password = host.run("sh", "-c", "cat /etc/azq/*gateway*.env").split("unix://")[1].split("@")[0].rpartition(":")[2]
    assert password
    assert password not in host.run("systemctl", "show", GATEWAY) + host.run("ps", "axww", "-o", "args")


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_it_comes_back_and_no_game_is_lost(host: Namespace, signal: str) -> None:
    before, games = host.show(GATEWAY, "MainPID"), host.counted("finished")
    host.signal(GATEWAY, signal)
    host.until(lambda: host.show(GATEWAY, "MainPID") not in (before, "0") and host.show(GATEWAY, "SubState") == "running", "the gateway")
    host.until(lambda: host.counted("finished") > games + 20, "further games")
    ledger = host.http("GET", "/v1/runs/ttt/ledger")
    assert (ledger["balanced"], ledger["abandoned"]) == (True, 0)


def test_stopped_it_gives_games_back_and_ends_its_children(host: Namespace) -> None:
    host.run("systemctl", "stop", GATEWAY)
    assert host.show(GATEWAY, "Result") == "success"
    assert "stopped" in " ".join(host.messages(GATEWAY))
    assert "volunteers.model_maker" not in host.run("ps", "axww", "-o", "args")
    assert host.http("GET", "/v1/runs/ttt/ledger")["balanced"]
