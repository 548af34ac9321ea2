"""`azq replay` reads a run's folder, and says in one line what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from azq import _core
from azq.config import RunSections, load
from azq.console.replay import replay_game, replay_text
from azq.errors import ConfigError, NotFound
from azq.host.rundir import RunDir
from azq.replay.segments import LogEntry, SegmentLog
from azq.search.search import exploring
from azq.wire.arrays import pack_record
from azq.wire.codec import encode
from azq.wire.messages import SampleEvent

UID = 7


def run_with_a_game(home: Path, evaluator: str) -> None:
    """A run `first` of tic-tac-toe with one game, whose leaves were all evaluated alike."""
    sections = RunSections.model_validate(
        {"run": {"game": "tic_tac_toe", "seed": 3}, "search": {"num_simulations": 16}, "selfplay": {"evaluator": evaluator}}
    )
    RunDir(home, "first").create(sections)
    game = _core.load_game("tic_tac_toe", {})
    search = _core.Search(game, exploring(sections.search), num_slots=1, seed=3)
    search.start(0, UID, np.zeros(0, np.uint16))
    packed, slots = np.zeros((1, game.packed_size()), np.uint8), np.zeros(1, np.int32)
    while search.collect(packed, slots):
        search.apply(np.zeros((1, 9), np.float16), np.zeros((1, 1), np.float16), 4)
    record = search.record(0)
    log = SegmentLog(home / "first" / "segments", "tic_tac_toe")
    log.append([LogEntry(UID, 1, encode(SampleEvent(pack_record(record), tuple(map(float, record.returns)), "w:1", 1)))])
    log.close()


def test_a_game_is_told_ply_by_ply(tmp_path: Path) -> None:
    run_with_a_game(tmp_path, "uniform")
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, None)
    assert told["first_difference"] is None
    assert told["counts"]["equal"] == len(told["plies"])
    assert told["plies"][0]["recorded"]["action"] == told["plies"][0]["now"]["action"]
    assert sum(row["visits"] for row in told["plies"][0]["actions"]) == 16
    assert replay_text(told)[-1] == f"game {UID} by w:1: {len(told['plies'])} equal"


def test_one_ply_shows_all_its_actions(tmp_path: Path) -> None:
    run_with_a_game(tmp_path, "uniform")
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, 2)
    assert [each["ply"] for each in told["plies"]] == [2]
    assert len(replay_text(told)) == 1 + 7 + 1


def test_long_work_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_a_game(tmp_path, "uniform")
    monkeypatch.setattr("azq.console.grading.TELL_EVERY_S", 0.0)
    lines: list[str] = []
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, None, lines.append)
    last = told["plies"][-1]["ply"]
    assert lines[:2] == [f"ply 0 of {last} told, {asked} positions evaluated" for asked in (1, 2)]


@pytest.mark.parametrize(
    ("run", "uid", "ply", "error", "said"),
    [
        ("second", UID, None, NotFound, "there are: first"),
        ("first", 99, None, NotFound, "no game 99"),
        ("first", UID, 40, ConfigError, "--ply 40 was not searched; of game 7 plies 0 to"),
        ("first", UID, None, NotFound, "weights of version 4 are not in"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path: Path, run: str, uid: int, ply: int | None, error: type[Exception], said: str) -> None:
    run_with_a_game(tmp_path, "stream")
    with pytest.raises(error, match=said):
        replay_game(load(None, [f'home="{tmp_path}"']), run, uid, ply)
