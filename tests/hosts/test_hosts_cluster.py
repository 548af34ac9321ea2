"""A cluster from its file on hosts of its own: brought up, hurt, mended, taken down, ended by its budget."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import ClusterCommands, processes
from lan_hosts import Host, lan, why_not

from azq.config import load
from azq.goals import BUDGET_SPENT
from azq.host.brokers import reading_control
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts, RunView
from azq.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no hosts can be made here: {why_not()}")

LOST = {  # each host, and whom it takes with it
    "cora": {"helpers-1"},
    "dora": {"helpers-2", "players-2"},
    "bea": {"trainer", "players-1"},
    "first": {"first"},
}
FILE = """
[cluster]
name = "four"
folder = "{folder}/four"

[ssh]
command = ["ip", "netns", "exec", "{{user}}", "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', "{{user}}"]
azq = ["{python}", "-m", "azq"]

[kinds.box]
per_hour = 0.5
vcpus = 2

[machines.first]
kind = "box"
roles = ["broker", "daemon"]
hosts = ["{first}"]

[machines.trainer]  # away from the brokers
kind = "box"
roles = ["learner"]
hosts = ["{b}"]

[machines.helpers]
kind = "box"
count = 2
roles = ["rank", "inference"]
hosts = ["{c}", "{d}"]

[machines.players]
kind = "box"
count = 2
concurrency = 1
roles = ["selfplay", "eval"]
hosts = ["{b}", "{d}"]

[settings.daemon]
lease_s = 6

[settings.worker]
heartbeat_s = 5

[run]
game = "{game}"
until = "steps=10000000"
settings = [
    "network={{kind='mlp', blocks=1, channels=16}}", "search.num_simulations=16",
    "arena={{every_s=3600.0, games=4, opponents=['uct:20'], grade_positions=10, num_simulations=8}}",
    "selfplay={{games_in_flight=32, journal_s=0.5, slice_s=20.0}}",
    "learner={{batch_size=64, min_window=256, publish_every_s=3.0, limiter_slack=10000000, device='cpu', rank_timeout_s=10.0}}",
]
"""


@contextlib.contextmanager
def cluster(folder: Path, game: str) -> Iterator[tuple[ClusterCommands, dict[str, Host]]]:
    with lan("first", "bea", "cora", "dora") as hosts:
        named = {name: f"{host.space}@{host.address}" for name, host in hosts.items()}
        file = folder / "cluster.toml"
        places = {"first": named["first"], "b": named["bea"], "c": named["cora"], "d": named["dora"]}
        file.write_text(FILE.format(folder=folder, python=sys.executable, game=game, **places))
        yield ClusterCommands(file), hosts


def kill(host: Host) -> int:
    """A machine's power cut; how many processes it ended."""
    pids = subprocess.run(["ip", "netns", "pids", host.space], capture_output=True, text=True, check=True).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    return len(pids)


def more_games(game: str, before: int) -> Callable[[dict[str, Any]], bool]:
    return lambda said: bool(said["runs"][game]["games"] >= before + 100)


def ledger(folder: Path) -> tuple[RunView, LedgerCounts]:
    """The cluster's run as its brokers' files have it, once they are stopped."""
    with reading_control(load(overrides=[f"home={folder / 'four' / 'runs'}"])) as client:
        (view,) = Ledger(client).runs()
        return view, Ledger(client).counts(view.record.run)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_cluster_of_four_hosts_trains_survives_the_loss_of_any_and_ends_by_its_budget(tmp_path: Path) -> None:
    game = "connect_four"
    with cluster(tmp_path, game) as (azq, hosts):
        found = azq("up")
        assert found["whole"]
        assert {row["name"] for row in found["machines"]} == {"first", "trainer", "helpers-1", "helpers-2", "players-1", "players-2"}
        seen = azq.until(lambda said: said["runs"][game]["version"] >= 2 and said["runs"][game]["ranks_at_work"] == 2, "training by all")

        for name, members in LOST.items():
            assert kill(hosts[name]) > 1
            lost = azq("status", code=15)
            assert members <= set(lost["missing"]), name
            if name in ("cora", "dora"):  # an evaluator, a player, a learner and a rank are left
                before = lost["runs"][game]["games"]
                azq.until(more_games(game, before), f"games without {name}")
            mended = azq("up")
            assert mended["whole"], name
            now = azq.until(lambda said: said["runs"][game]["ranks_at_work"] == 2, f"all ranks with {name} back")["runs"][game]
            assert now["version"] >= seen["runs"][game]["version"]
            assert now["games"] >= seen["runs"][game]["games"]
            seen = azq.until(more_games(game, now["games"]), f"games with {name} back")

        budget = azq.file.read_text() + "\n[budget]\nmoney = 0.01  # which is spent\n"
        azq.file.write_text(budget)
        azq("up", code=None)
        until(lambda: not any(processes(host) for host in hosts.values()), "the end of all machines", 600.0, every_s=1.0)
        view, counts = ledger(tmp_path)
        assert (str(view.state), view.reason.partition(":")[0]) == ("finished", BUDGET_SPENT)
        assert counts.balanced
        assert (counts.inserted, counts.in_transit) == (counts.finished, 0)
        assert azq("down") == {"down": True}
        assert "is not up" in azq("down", code=9)["said"]


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_named_and_what_was_started_is_undone(tmp_path: Path) -> None:
    with cluster(tmp_path, "tic_tac_toe") as (azq, hosts):
        broken = tmp_path / "broken.toml"
        broken.write_text(azq.file.read_text().replace(f"{hosts['dora'].space}@", f"{hosts['dora'].space}-gone@"))
        half = ClusterCommands(broken)
        said = half("up", code=15)["said"]
        assert "players-2: not started" in said
        assert "down" in said
        assert processes(hosts["first"])
        assert "players-2" in half("down", code=15)["said"]  # it may be at work, who knows
        assert [said for host in hosts.values() for said in processes(host)] == []
