"""A run's record makes no process run a Python file that its own host does not allow: worker, learner, inference."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from azq.bus.redis import RedisBus
from azq.config import BrokerConfig, Config, RunConfig, RunSections, SelfPlayConfig, WorkerConfig, dump_run
from azq.errors import ConfigError, JobFailed
from azq.games import GameFiles
from azq.inference.device.engine import Engine
from azq.inference.serve.loading import LoadingThread
from azq.inference.serve.roster import Roster
from azq.inference.serve.served import Admission, specs
from azq.inference.serve.stats import Stats
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job, MatchSpec, RunRecord
from workers import evaluate
from workers import learner as learner_main
from workers.children import Board, ChildHeartbeat
from workers.context import Context

RUN = "guest"
MATCH = MatchSpec("random", "random", 2, 1, 0, 0)
NIM = (Path(__file__).parents[2] / "games" / "nim.py").read_text("utf-8")


class Host:
    """A control plane with one run, and the processes of a host that meet it."""

    def __init__(self, broker: Any, folder: Path) -> None:
        self.folder = folder
        self.marker = folder / "ran"
        self.control_url, self.data_url = broker.control_url, broker.data_url
        self.client = connect(broker.control_url)
        self.bus, self.ledger = RedisBus(self.client), Ledger(self.client)

    def config(self, *allowed: Path) -> Config:
        broker = BrokerConfig(control_url=self.control_url, data_url=self.data_url)
        return Config(broker=broker, worker=WorkerConfig(game_files=allowed))

    def record(self, game: str, **params: Any) -> None:
        sections = {
            **dump_run(RunSections(selfplay=SelfPlayConfig(evaluator="uniform"))),
            "run": RunConfig(game=game, params=params).model_dump(mode="json"),
        }
        self.ledger.create_run(RunRecord(RUN, msgspec.json.encode(sections), {}, str(self.folder / RUN), 1))

    def works(self, config: Config) -> str:
        """Why an evaluation job failed; empty where it did not."""
        view = self.ledger.enqueue(Job("", RUN, Kind.EVAL, "cpu", payload=encode(MATCH)))
        self.ledger.mark_published(view.job.job_id, 1)
        context = Context(config, ChildHeartbeat(Board(1), 0))
        with contextlib.suppress(JobFailed):
            evaluate.run(context, view.job.job_id, 1)
        found = self.ledger.job(view.job.job_id)
        return "" if found.state is JobState.DONE else found.error

    def serves(self, config: Config) -> bool:
        engine, files = Engine(config.inference), GameFiles(config.worker.game_files)
        admit = Admission(self.bus, lambda _view: lambda _event: b"", engine, "inference@test:1", specs(files))
        loading = LoadingThread(self.bus, Roster(self.ledger), admit, Stats())
        loading.poll()
        return RUN in loading.served


@pytest.fixture
def host(broker: Any, tmp_path: Path) -> Iterator[Host]:
    host = Host(broker, tmp_path)
    yield host
    host.client.close()


@pytest.mark.parametrize("guest", ["popen", "popen of an allowed file", "file"])
def test_what_a_host_does_not_allow_is_refused_and_never_run(host: Host, guest: str) -> None:
    file, allowed = host.folder / "nim.py", host.folder / "allowed"
    file.write_text(f"{NIM}\nopen({str(host.marker)!r}, 'w')\n", "utf-8")
    allowed.mkdir()
    (allowed / "game.py").write_text(f"from subprocess import Popen\n{NIM.partition('annotations')[2]}", "utf-8")
    if guest == "file":
        host.record(f"{file}:Nim")
    else:
        module = subprocess.__file__ if guest == "popen" else allowed / "game.py"
        host.record(f"{module}:Popen", args=f"touch {host.marker}", shell=True)
    config = host.config(allowed)
    reason = "no method num_players" if guest == "popen of an allowed file" else "worker.game_files"
    assert reason in host.works(config)
    with pytest.raises(ConfigError, match=reason):
        learner_main.main(config, RUN)
    assert not host.serves(config)
    assert not host.marker.exists()


def test_a_rank_of_the_learner_refuses_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    host.record(f"{subprocess.__file__}:Popen", args=f"touch {host.marker}", shell=True)
    with pytest.raises(ConfigError, match=r"worker\.game_files"):
        learner_main.main(host.config(host.folder), RUN)
    assert not host.marker.exists()


def test_what_a_host_allows_is_played(host: Host) -> None:
    (host.folder / "nim.py").write_text(NIM, "utf-8")
    host.record(f"{host.folder / 'nim.py'}:Nim", heap=7)
    config = host.config(host.folder)
    assert host.serves(config)
    assert host.works(config) == ""


def test_a_game_of_openspiel_opens_no_file_whatever_the_record_says(host: Host) -> None:
    host.record("openspiel:efg_game(filename=/etc/hostname)")
    assert "none of openspiel:NAME" in host.works(host.config())
    assert not host.serves(host.config())
