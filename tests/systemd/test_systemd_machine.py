"""A machine's end under a real systemd, with a fake command: by the fleet's budget, and by its dead-man timer while no broker answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from systemd.namespace import Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

AZQ = "/opt/azq/bin/azq"
WORKER = "azq-worker@selfplay.cpu"
RUN = {
    "name": "ttt",
    "sections": {"run": {"game": "tic_tac_toe"}, "selfplay": {"evaluator": "uniform", "games_in_flight": 16}, "arena": {"every_s": 0}},
}
OFF = "/srv/off"
MACHINE = f'[machine]\nper_hour = 3600.0\npoweroff_command = ["/bin/touch", "{OFF}"]\n'
OFTEN = "[Timer]\nOnActiveSec=1s\nOnUnitActiveSec=2s\nAccuracySec=100ms\n"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """A host on which everything plays, and whose settings have the watch and the timer enabled."""
    with Namespace(tmp_path_factory.mktemp("systemd")) as namespace:
        namespace.run(AZQ, "systemd", "install")
        write(namespace, "/etc/systemd/system/azq-deadman.timer.d/often.conf", OFTEN)
        write(namespace, "/etc/azq/azq.toml", f"{MACHINE}[budget]\nmoney = 1e6\n")
        namespace.run("systemctl", "daemon-reload")
        namespace.run("systemctl", "start", "azq.target", WORKER)
        namespace.until(lambda: namespace.http("POST", "/v1/runs", RUN), "a run")
        namespace.run(AZQ, "systemd", "install")  # by whose settings they are enabled
        yield namespace


def write(host: Namespace, path: str, text: str) -> None:
    host.run("sh", "-c", 'mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1" && chmod 644 "$1"', "sh", path, text)


def is_off(host: Namespace) -> bool:
    return host.run("sh", "-c", f"test -e {OFF} && echo yes", check=False) == "yes\n"


def test_a_spent_budget_ends_the_run_the_services_and_the_machine(host: Namespace) -> None:
    host.until(lambda: host.counted("finished") > 20, "the first games")
    found = host.until(lambda: (cost := host.http("GET", "/v1/runs/ttt/cost")) and cost["money"] > 0 and cost, "what it costs")
    assert (found["unpriced"], found["per_hour"]) == ([], 3600.0)
    assert not is_off(host)
    write(host, "/etc/azq/azq.toml", f"{MACHINE}[budget]\nmoney = 1.0\n")
    host.run("systemctl", "restart", "azq-daemon")
    host.until(lambda: is_off(host), "the machine's end", 200)
    for unit in (WORKER, "azq-daemon", "azq-broker@control"):
        assert host.show(unit, "ActiveState") == "inactive", unit
    assert any("budget spent: 1 USD" in line for line in host.messages("azq-daemon"))
    assert any("the fleet is over: budget spent: 1 USD" in line for line in host.messages("azq-machine-end"))


def test_the_timer_ends_a_machine_that_hears_of_no_daemon(host: Namespace) -> None:
    host.run("rm", OFF)
    host.run("systemctl", "stop", "azq-deadman.timer")  # or it would end at once what begins after so long a silence
    write(host, "/etc/azq/azq.toml", f"{MACHINE}lost_after_s = 8.0\n")
    host.run("systemctl", "start", "azq.target", WORKER)
    host.run("systemctl", "restart", "azq-machine")
    host.until(lambda: host.show(WORKER, "SubState") == "running", "a worker")
    host.until(lambda: host.run("find", "/run/azq-machine/heard", "-newermt", "-3 seconds", check=False), "a word of the daemon")
    host.run("systemctl", "start", "azq-deadman.timer")
    host.run("systemctl", "stop", "azq-machine", "azq-daemon", "azq-broker@control")  # neither the watch nor the network helps
    host.until(lambda: is_off(host), "the machine's end", 90)
    assert host.show(WORKER, "ActiveState") == "inactive"
    assert any("no daemon was heard of" in line for line in host.messages("azq-machine-end"))
