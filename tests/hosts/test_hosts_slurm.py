"""A cluster as jobs of a real Slurm: submitted, a job's time is up and it goes on, cancelled, submitted again, and over when its run is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_host import SlurmHost, slurm, why_not
from waiting import PATIENCE_S, until

from azq.config import load
from azq.host.brokers import reading_control
from azq.host.fronts import free_port
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts
from azq.process.start import AZQ, foreign_environment

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"no Slurm can be started here: {why_not()}")

RUN = "tic_tac_toe"
FILE = """
[cluster]
name = "lab"
folder = "{folder}"
port = {port}

[slurm]
setup = ["export PATH={bin}:$PATH AZQ_ADDRESS=127.0.0.1 OMP_NUM_THREADS=1"]
time = "30"
drain_s = 120

[kinds.node]
per_hour = 0

[machines.head]
kind = "node"
roles = ["broker", "daemon", "learner"]

[machines.leaves]
kind = "node"
roles = ["inference"]

[machines.players]
kind = "node"
count = 2
concurrency = 1
roles = ["selfplay"]

[settings.daemon]
lease_s = 6
port = {daemon}

[run]
game = "tic_tac_toe"
settings = [
    "network={{kind='mlp', blocks=1, channels=16}}", "search.num_simulations=16", "arena.every_s=0",
    "selfplay={{games_in_flight=16, journal_s=0.5, slice_s=20.0}}",
    "learner={{batch_size=64, min_window=128, publish_every_s=3.0, limiter_slack=10000000, device='cpu'}}",
]
"""


class Lab:
    """The cluster's folder as its user has it."""

    def __init__(self, folder: Path, host: SlurmHost) -> None:
        port = free_port(3)
        file, self.out, self.home = folder / "lab.toml", folder / "out", folder / "azq" / "runs"
        self.state, self.host = folder / "azq" / "clusters" / "lab", host
        file.write_text(FILE.format(folder=folder / "azq", port=port, daemon=port + 2, bin=Path(sys.executable).parent))
        self._env = {**foreign_environment(), "AZQ_HOME": str(self.home), "AZQ_DAEMON__PORT": str(port + 2)}
        self.azq("cluster", "render", str(file), "--target", "slurm", "--out", str(self.out))

    def azq(self, *arguments: str) -> None:
        done = subprocess.run([*AZQ, *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=self._env)
        assert done.returncode == 0, done.stderr

    def submit(self) -> str:
        return self.host(str(self.out / "submit.sh"))

    def cancel(self) -> None:
        self.host(str(self.out / "cancel.sh"), within_s=600.0)

    def log(self, task: str) -> str:
        path = self.state / f"{task}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def until_games(self, games: int) -> int:
        """Games that the run learned from, once there are so many."""
        until(lambda: self._games() >= games, f"{games} games; jobs: {self.host.jobs()}, {self.log('head-0')[-2000:]}", 300.0)
        return self._games()

    def _games(self) -> int:
        return self.ledger()[1].inserted if (self.state / "address").exists() else -1

    def until_no_jobs(self) -> None:
        until(lambda: not self.host.jobs(), f"the end of all jobs; {self.log('head-0')[-2000:]}", 400.0)

    def ledger(self) -> tuple[str, LedgerCounts]:
        """State and counts of the run, whether its brokers are at work or not."""
        config = load(overrides=[f"home={self.home}"])
        with reading_control(config) as client:
            ledger = Ledger(client)
            (view,) = ledger.runs()
            return str(view.state), ledger.counts(RUN)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with slurm(tmp_path / "slurm") as host:
        lab = Lab(tmp_path, host)
        try:
            yield lab
        finally:
            if host.jobs():
                lab.cancel()


@pytest.mark.slow
def test_a_cluster_of_jobs_loses_nothing_and_ends_with_its_run(lab: Lab) -> None:
    assert lab.submit().count("tasks 0") == 3
    lab.until_games(100)
    assert lab.submit().count("is there") == 3
    assert {path.stat().st_mode & 0o077 for path in lab.state.glob("*.token")} == {0}

    # What Slurm does when a job's time is nearly up.
    tasks = lab.host("squeue", "--noheader", "--array", "--name=azq-lab-players", "--format=%i").split()
    lab.host("scancel", "--signal=TERM", "--batch", next(task for task in tasks if task.endswith("_0")))
    until(lambda: "queued again" in lab.log("players-0"), "a job that drains")
    until(lambda: lab.log("players-0").count("working in the foreground") == 2, "the job that was queued again")
    lab.until_games(lab.until_games(0) + 50)

    lab.cancel()
    assert lab.host.jobs() == []
    state, before = lab.ledger()
    assert state == "paused"
    assert before.balanced

    lab.submit()
    goal = lab.until_games(before.inserted + 50) + 50
    lab.azq("runs", "until", RUN, "--until", f"games={goal}")
    lab.until_no_jobs()  # nobody holds nodes for a run that is over
    state, after = lab.ledger()
    assert state == "finished"
    assert after.inserted >= goal
    assert after.balanced
    assert (after.abandoned, after.in_transit) == (0, 0)
