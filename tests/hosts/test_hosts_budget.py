"""A cluster that spends its budget: its run ends, is evaluated and saved, and every machine ends its work by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cluster_commands import ClusterCommands, processes
from lan_hosts import lan, why_not

from azq.bus.redis import RedisBus
from azq.config import load
from azq.goals import BUDGET_SPENT
from azq.host.brokers import reading_control
from azq.ledger import Ledger
from azq.status.observe import read_results, read_weights
from azq.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no hosts can be made here: {why_not()}")

RUN = "tic_tac_toe"
FILE = """
[cluster]
name = "brief"
folder = "{folder}/azq"

[ssh]
command = ["ip", "netns", "exec", "{{user}}", "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', "{{user}}"]
azq = ["{python}", "-m", "azq"]

[kinds.box]
per_hour = 0.5
vcpus = 2

[budget]
money = 0.02  # 72 s of both

[machines.first]
kind = "box"
roles = ["broker", "daemon", "learner", "eval"]
hosts = ["{first}"]

[machines.players]
kind = "box"
concurrency = 1
roles = ["selfplay", "inference"]
hosts = ["{second}"]

[settings.daemon]
lease_s = 6

[run]
game = "tic_tac_toe"
until = "steps=10000000"
settings = [
    "network={{kind='mlp', blocks=1, channels=16}}", "search.num_simulations=16",
    "arena={{every_s=3600.0, games=4, opponents=['uct:20'], grade_positions=10, num_simulations=8}}",
    "selfplay={{games_in_flight=16, journal_s=0.5, slice_s=20.0}}",
    "learner={{batch_size=64, min_window=64, publish_every_s=3.0, limiter_slack=10000000, device='cpu'}}",
]
"""


@pytest.mark.slow
def test_a_cluster_ends_when_its_budget_is_spent(tmp_path: Path) -> None:
    with lan("first", "bea") as hosts:
        named = {name: f"{host.space}@{host.address}" for name, host in hosts.items()}
        file = tmp_path / "cluster.toml"
        file.write_text(FILE.format(folder=tmp_path, python=sys.executable, first=named["first"], second=named["bea"]))
        azq = ClusterCommands(file)
        azq("up")
        until(lambda: not any(processes(host) for host in hosts.values()), "the end of both machines", 600.0, every_s=1.0)

        for name in ("first", "players"):
            assert f"the fleet is over: {BUDGET_SPENT}" in (tmp_path / "azq" / "clusters" / "brief" / name / "member.log").read_text()
        with reading_control(load(overrides=[f"home={tmp_path / 'azq' / 'runs'}"])) as client:
            bus, ledger = RedisBus(client), Ledger(client)
            (view,) = ledger.runs()
            counts = ledger.counts(RUN)
            newest = read_weights(bus, RUN)[0].version
            results = read_results(bus, RUN)
        assert (str(view.state), view.reason.partition(":")[0]) == ("finished", BUDGET_SPENT)
        assert counts.balanced
        assert (counts.inserted, counts.in_transit) == (counts.finished, 0)
        assert f"weights:{newest}" in {result.first for result in results[0]}
        assert list((tmp_path / "azq" / "runs" / RUN / "checkpoints").iterdir())
        assert azq("status", code=15)["whole"] is False
        assert azq("down") == {"down": True}
