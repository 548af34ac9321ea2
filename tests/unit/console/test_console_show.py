"""`azq status` and `azq why`: what is read of runs, at work or not, and shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from memory_broker import MemoryBus
from replay_games import play_game
from typer.testing import CliRunner

from azq import games
from azq.cli.app import app
from azq.config import Config, RunConfig, RunSections, SearchConfig, load
from azq.config.loading import given
from azq.console import show
from azq.console.show import ADVISE_EVERY_S as EVERY_S
from azq.console.show import Adviser, show_status, why_text
from azq.host import brokers
from azq.host.brokers import Brokers
from azq.host.rundir import RunDir
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.replay.readers import SegmentReader
from azq.replay.segments import LogEntry, SegmentLog
from azq.status.conditions import FEWEST, publish_death
from azq.status.summary import RunFacts, RunStatus, ranks_status, summarise
from azq.status.why.gather import diagnose
from azq.wire.codec import encode
from azq.wire.machines import ProcessDeath
from azq.wire.messages import HistoryPoint, LearnerStatus, RankStatus, RunRecord
from daemon.api import figures


def test_each_broker_is_shown_and_one_that_is_away_is_a_condition_of_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load(None, [f'home="{tmp_path}"', "broker.data_shards=2"])

    def shown(run: str | None = None, as_json: bool = False) -> str:
        show_status(config, run, as_json)
        return capsys.readouterr().out

    with Brokers(config, tmp_path) as running:
        assert "No runs yet" in shown()
        Ledger(running.control).create_run(RunRecord("ttt", b"{}", {}, "", 0))
        (line,) = [line for line in shown().splitlines() if line.startswith("brokers")]
        assert all(f"  {plane} " in line for plane in ("control", "data", "data1"))
        assert "does not answer" not in line
        assert json.loads(shown("ttt", as_json=True))["conditions"] == []
        running._servers["data1"].stop()
        assert "data1 does not answer" in shown("ttt")
        ((condition,),) = (run["conditions"] for run in json.loads(shown(as_json=True)))
        assert re.search(r"^broker data1 does not answer: no broker at .*No such file", condition)


EACH = (
    RankStatus(0, "trains", "first", "cuda:0", 96, 3000.0, 0.032, 0.001, 800_000_000),
    RankStatus(1, "trains", "second", "cuda:0", 160, 5000.0, 0.032, 0.002, 900_000_000, 40, 2, "out of memory", 0, 71_400_000),
    RankStatus(2, "left_out", "third", errors=6, reason="its process ended"),
)
LEARNER = LearnerStatus(
    120, 5000, 20000, 160, 0, 5000, 1.25, 0.31, 2e-3, 7, False, False, 7900.0, 0, 0.5, 3, 2, 4, 0.032, 0.0015, 0.97, each_rank=EACH
)


def status() -> RunStatus:
    view = RunView(RunRecord("first", b"{}", {}, "runs/first", 0), RunState.RUNNING, "", 0, 0)
    newest = HistoryPoint(0, samples_per_s=LEARNER.samples_per_s, active_ms=1)
    return summarise(RunFacts(view=view, counts=LedgerCounts(0, 0, 0, 0, 0, 0, 0), learner=LEARNER, point=newest), 0)


def test_each_rank_has_a_line_where_there_are_several(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    watched(monkeypatch, status())
    show_status(Config(), "first", as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "scaling efficiency 97%" in shown
    assert "1 trains second cuda:0 160 by 40 5k 32.0 2.0 900 MB 71.4 MB 2 out of memory" in shown
    assert "2 left out third 0 0 0.0 0.0 0 MB 0.0 MB 6 its process ended" in shown
    watched(monkeypatch, replace(status(), ranks=ranks_status(msgspec.structs.replace(LEARNER, ranks=1, each_rank=()))))
    show_status(Config(), "first", as_json=False)
    assert "last error" not in capsys.readouterr().out


def test_metrics_name_run_rank_and_host() -> None:
    said = {(sample.name, *sample.labels.values()): sample.value for family in figures.of_runs([status()]) for sample in family.samples}
    assert said["azq_rank_samples_per_s", "first", "1", "second"] == 5000.0
    assert said["azq_rank_errors", "first", "2", "third"] == 6
    assert said["azq_rank_memory_bytes", "first", "0", "first"] == 8e8
    assert said["azq_rank_state_bytes", "first", "1", "second"] == 71.4e6


def watched(monkeypatch: pytest.MonkeyPatch, status: RunStatus) -> None:
    watch: Any = type("Watched", (), {"__init__": lambda self, client: None, "summary": lambda self, run: status})
    monkeypatch.setattr(show, "Watch", watch)
    monkeypatch.setattr(brokers, "open_control", lambda config: (config, None))
    monkeypatch.setattr(show, "planes_of", lambda *_: ())


def plant(home: Path, *, simulations: int) -> RunDir:
    """A run with random games."""
    folder, rules = RunDir(home, "first"), games.load("tic_tac_toe")
    folder.create(RunSections(run=RunConfig(game="tic_tac_toe"), search=SearchConfig(num_simulations=simulations)))
    log = SegmentLog(folder.path / "segments", "tic_tac_toe")
    for uid in range(1, 121):
        event = play_game(rules, uid)
        spent = bytes([simulations, 0]) * (len(event.record.actions) // 2)
        log.append(
            [LogEntry(uid, 1, encode(msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, simulations=spent))))]
        )
    log.close()
    return folder


def test_a_finding_is_a_line_and_for_machines_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    plant(tmp_path, simulations=1)
    told = CliRunner().invoke(app, ["why", "first"], catch_exceptions=False).stdout.splitlines()
    assert told[0].startswith("targets: 1.0 simulations a ply where ")
    assert told[0].endswith("; set search.num_simulations = 32 (now 1) [medium]")
    assert told[1] == "120 games and no history checked"
    assert told[2] == "Not checked without history: limiter, window, loss"
    assert told[3].startswith("no history: ")
    found = json.loads(CliRunner().invoke(app, ["why", "first", "--games", "100", "--json"], catch_exceptions=False).stdout)
    assert (found["games"], found["steps"], [each["rule"] for each in found["findings"]]) == (100, None, ["targets"])
    assert found["findings"][0]["setting"] == {"key": "search.num_simulations", "now": 1, "value": 32}
    assert found["findings"][0]["confidence"] == "medium"


def test_a_run_at_work_is_looked_at_once_a_minute(tmp_path: Path) -> None:
    folder, now_s = plant(tmp_path, simulations=1), [0.0]
    adviser = Adviser(folder, given(base=folder.values()), MemoryBus(), lambda: now_s[0])
    assert adviser.advise() == ()
    now_s[0] = EVERY_S + 1
    (told,) = adviser.advise()
    assert told.startswith("azq why: targets: ")
    assert adviser.advise() == (told,)


def test_a_process_that_dies_again_and_again_is_named_in_place_of_nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.status.why.gather.now_ms", lambda: 0)  # ids of the bus in memory begin there
    folder, bus = plant(tmp_path, simulations=64), MemoryBus()
    for pid in range(FEWEST):
        publish_death(bus, ProcessDeath("learner", "box", pid, "first", "SIGSEGV", "/l.log"))
    found = diagnose(bus, "first", folder.sections(), None, SegmentReader(folder.path / "segments"))
    told, *_ = why_text(found)
    assert told.startswith("learner died 3 times in ")
    assert not any("No problems" in line for line in why_text(found))
    assert diagnose(bus, "second", folder.sections(), None, SegmentReader(folder.path / "segments")).dying == ()


def test_a_run_without_games_is_never_told_that_nothing_was_found(tmp_path: Path) -> None:
    settings = RunSections(run=RunConfig(game="tic_tac_toe"))
    found = diagnose(None, "first", settings, games.load("tic_tac_toe"), SegmentReader(tmp_path))
    answer, blind, *_ = why_text(found)
    assert answer.startswith("No answer: ")
    assert blind.startswith("Not checked without games: rewards, observations, targets, openings, cap, draws, ")
    assert why_text(replace(found, no_games="no game was begun"))[0] == "no games: no game was begun"


def test_nothing_wrong_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    plant(tmp_path, simulations=32)
    assert CliRunner().invoke(app, ["why", "first"], catch_exceptions=False).stdout.startswith("No problems found (120 games and ")
