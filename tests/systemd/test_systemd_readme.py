"""The README's block for a service, as written, on a booted systemd: from a checkout below a home folder to games, Flower and a drill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from systemd.namespace import REPOSITORY, Namespace, why_not

REASON = why_not()
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(REASON), reason=f"no systemd can be booted here: {REASON}")]

CHECKOUT = "/home/somebody/azq"
MINUTES_S = 1200  # the core is compiled
#: root needs no sudo, and the interpreter of this environment is not on the path
BEFORE = f'set -e; cd {CHECKOUT}; export PYTHON=/opt/python/bin/python3; sudo() {{ "$@"; }}\n'


def block() -> str:
    """What the README has a reader type."""
    section = (REPOSITORY / "README.md").read_text("utf-8").partition("## As a service\n")[2]
    found = re.search(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    with Namespace(tmp_path_factory.mktemp("systemd"), CHECKOUT, MINUTES_S) as namespace:
        yield namespace


def bash(host: Namespace, script: str) -> str:
    return host.run("bash", "-c", BEFORE + script, timeout_s=MINUTES_S)


@pytest.mark.timeout(MINUTES_S)
def test_the_block_installs_trains_watches_and_rehearses(host: Namespace) -> None:
    said = bash(host, block())
    assert '"name":"ttt"' in said  # the run
    assert '"kind":"selfplay"' in said  # the job
    assert "Workers · Flower" in said
    assert "selfplay-kill" in said
    host.until(lambda: (ledger := host.http("GET", "/v1/runs/ttt/ledger")) and ledger["inserted"] > 20, "the first games")
    before = host.show("azq-daemon", "MainPID")
    bash(host, "sudo make install")  # an upgrade in place
    assert host.show("azq-daemon", "MainPID") not in (before, "0")
    host.until(lambda: (ledger := host.http("GET", "/v1/runs/ttt/ledger")) and ledger["balanced"], "the run after the upgrade")
    bash(host, "sudo systemctl enable azq.target azq-worker@selfplay.cpu; sudo make uninstall")
    left = host.run("sh", "-c", "ls -d /opt/azq/* /etc/systemd/system/azq* /etc/systemd/system/azq.target.wants/*", check=False)
    assert left == ""
    assert "active" not in host.run("systemctl", "list-units", "--no-legend", "azq*", check=False).split()
    assert host.run("ls", "/var/lib/azq/runs/ttt/run.toml", "/etc/azq/azq.env").split()
    assert Path("/etc/azq").exists() is False  # nothing of this left the namespace
