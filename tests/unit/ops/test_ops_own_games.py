"""`ops/bench/own_games.py`: positions of a run's own games by their exact results."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from azq import games
from azq.arena.positions import read
from azq.replay.segments import LogEntry, SegmentLog
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

SCRIPTS = Path(__file__).parents[3] / "ops" / "bench"
#: x has three in column 3 and does not finish; o has three in column 0 and does
BLUNDER = (3, 0, 3, 0, 3, 0, 6, 0)
SEARCHED = 6  # the ply at which x throws the win away


@pytest.fixture(scope="module")
def own_games() -> Iterator[ModuleType]:
    pytest.importorskip("bitbully", reason="the extra `eval` is not there")
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("own_games")
    sys.path.remove(str(SCRIPTS))


def run_of(folder: Path, searched: int) -> Path:
    """Of a run with that one game, of which one ply was searched and taken for half a win."""
    state, plies = games.load("connect_four").new_initial_state(), len(BLUNDER)
    for action in BLUNDER:
        state.apply_action(action)
    assert state.returns() == [-1.0, 1.0]
    simulations = np.zeros(plies, "<u2")
    simulations[searched] = 32
    record = GameRecord(
        uid=1,
        actions=np.array(BLUNDER, "<u2").tobytes(),
        policies=np.full((plies, 7), 1 / 7, "<f2").tobytes(),
        root_values=np.full(plies, 0.5, "<f4").tobytes(),
        simulations=simulations.tobytes(),
        weight_versions=np.ones(plies, "<u4").tobytes(),
    )
    log = SegmentLog(folder / "segments", "connect_four")
    log.append([LogEntry(1, 1, encode(SampleEvent(record, tuple(state.returns()), "test", 0)))])
    log.close()
    return folder


def test_a_win_thrown_away_is_counted_and_what_was_searched_alone_is_judged(
    own_games: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "own.jsonl"
    monkeypatch.setattr(sys, "argv", ["own_games.py", str(run_of(tmp_path / "run", SEARCHED)), "--count", "8", "--out", str(out)])
    assert own_games.main() == 0
    _, _, *rows = (line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines())
    assert rows == [[name, "8", "8 of 8, 100 %", "4.00", "0.25"] for name in ("4 to 7", "all")]
    assert [(position.actions, position.moves[3,], position.moves[6,]) for position in read(out)] == [(BLUNDER[:SEARCHED], 1.0, -1.0)] * 8


def test_a_run_without_such_a_ply_is_named(
    own_games: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["own_games.py", str(run_of(tmp_path / "run", 2))])
    with pytest.raises(SystemExit):
        own_games.main()
    assert f"no game of {tmp_path / 'run'} was searched between 5 and 36 stones" in capsys.readouterr().err
