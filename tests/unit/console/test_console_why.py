"""`azq why` on the folder of a run, and the sentences of a run at work."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from replay_games import play_game
from typer.testing import CliRunner

from azq import games
from azq.bus.memory import MemoryBus
from azq.cli.app import app
from azq.config import RunConfig, RunSections, SearchConfig
from azq.config.loading import given
from azq.console.why import EVERY_S, Adviser, why_text
from azq.host.rundir import RunDir
from azq.replay.readers import SegmentReader
from azq.replay.segments import LogEntry, SegmentLog
from azq.status.deaths import FEWEST, tell
from azq.status.why.gather import diagnose
from azq.wire.codec import encode
from azq.wire.machines import ProcessDeath


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
    assert told[1] == "looked at 120 games and no history"
    assert told[2] == "not looked for, for want of history: limiter, window, loss"
    assert told[3].startswith("no history: ")
    found = json.loads(CliRunner().invoke(app, ["why", "first", "--games", "100", "--json"], catch_exceptions=False).stdout)
    assert (found["games"], found["steps"], [each["rule"] for each in found["findings"]]) == (100, None, ["targets"])
    assert found["findings"][0]["setting"] == {"key": "search.num_simulations", "now": 1, "value": 32}
    assert found["findings"][0]["confidence"] == "medium"


def test_a_run_at_work_is_looked_at_once_a_minute(tmp_path: Path) -> None:
    folder, now_s = plant(tmp_path, simulations=1), [0.0]
    adviser = Adviser(folder, given(base=folder.values()), MemoryBus(), lambda: now_s[0])
    assert adviser.look() == ()
    now_s[0] = EVERY_S + 1
    (told,) = adviser.look()
    assert told.startswith("azq why: targets: ")
    assert adviser.look() == (told,)


def test_a_process_that_dies_again_and_again_is_named_in_place_of_nothing_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.status.why.gather.now_ms", lambda: 0)  # ids of the bus in memory begin there
    folder, bus = plant(tmp_path, simulations=64), MemoryBus()
    for pid in range(FEWEST):
        tell(bus, ProcessDeath("learner", "box", pid, "first", "SIGSEGV", "/l.log"))
    found = diagnose(bus, "first", folder.sections(), None, SegmentReader(folder.path / "segments"))
    told, *_ = why_text(found)
    assert told.startswith("learner died 3 times in ")
    assert "nothing found" not in why_text(found)
    assert diagnose(bus, "second", folder.sections(), None, SegmentReader(folder.path / "segments")).dying == ()


def test_a_run_without_games_is_never_told_that_nothing_was_found(tmp_path: Path) -> None:
    settings = RunSections(run=RunConfig(game="tic_tac_toe"))
    found = diagnose(None, "first", settings, games.load("tic_tac_toe"), SegmentReader(tmp_path))
    nothing, looked, blind, *_ = why_text(found)
    assert (nothing, looked) == ("no game is recorded here, which says nothing about the run", "looked at 0 games and no history")
    assert blind.startswith("not looked for, for want of games: rewards, observations, targets, openings, cap, draws, ")
    assert why_text(replace(found, no_games="no game was begun"))[0] == "no games: no game was begun"


def test_nothing_wrong_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    plant(tmp_path, simulations=32)
    assert CliRunner().invoke(app, ["why", "first"], catch_exceptions=False).stdout.splitlines()[0] == "nothing found"
