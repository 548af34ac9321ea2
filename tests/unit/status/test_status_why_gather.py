"""From a run's log to facts, to findings over REST and to columns of figures for charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from replay_games import play_game

from azq import games
from azq.config import RunConfig, RunSections, dump_run
from azq.replay.readers import SegmentReader
from azq.samples.learning import learning_curves
from azq.samples.played import read_games
from azq.status.why.gather import OPENING_PLIES, diagnose, facts_of
from azq.status.why.probe import probe
from azq.wire.messages import GradeResult, HistoryPoint, SampleEvent

GAMES = Path(__file__).parents[2] / "games"


def events_of(game: Any, count: int = 60) -> list[SampleEvent]:
    return [play_game(game, uid, weight_version=uid) for uid in range(1, count + 1)]


@pytest.mark.parametrize("name", games.names())
def test_random_games_of_every_game_have_sound_facts(name: str) -> None:
    game = games.load(name)
    facts = facts_of(game, RunSections(run=RunConfig(game=name)), events_of(game))
    played = facts.played
    assert played is not None
    assert played.games == 60
    assert sum(played.wins) + played.shared == 60
    assert played.mistakable.count == 0  # who may do what can be seen
    assert played.capped.share < 0.2
    assert played.sharpness is not None
    assert 0.3 < played.sharpness.mean < 0.95  # random targets
    assert played.simulations == 32
    assert facts.probe is not None
    assert facts.probe.random_rewarded.share > 0.5


@pytest.mark.parametrize(
    ("name", "perfect"), [("tic_tac_toe", 0.0), (f"{GAMES / 'nim.py'}:Nim", 1.0), ("connect_four", None), ("backgammon", None)]
)
def test_small_games_are_played_to_their_ends(name: str, perfect: float | None) -> None:
    assert probe(games.load(name), 2).perfect == perfect


def test_openings_are_counted_as_far_as_they_matter() -> None:
    nim, tic_tac_toe = games.load(f"{GAMES / 'nim.py'}:Nim"), games.load("tic_tac_toe")
    assert [probe(nim, plies).openings for plies in (1, 2)] == [3, 9]
    assert [probe(tic_tac_toe, plies).openings for plies in (1, 2)] == [9, 64]


def points(step: int, count: int = 50) -> Sequence[HistoryPoint]:
    return [
        HistoryPoint(5_000 * n, step=step * n, samples=1_000 * n, weight_version=n, loss_policy=3 - n / count, loss_value=1.0)
        for n in range(1, count + 1)
    ]


def test_a_history_becomes_first_and_last_losses_and_the_age_of_the_window() -> None:
    curves = facts_of(None, RunSections(), [], points(100), [GradeResult(3, 64, 200, 10, 1), GradeResult(2, 64, 200, 90, 1)])
    assert curves.errors is not None
    assert (curves.errors.count, curves.errors.of) == (10, 200)
    found = curves.curves
    assert found is not None
    assert (found.samples, found.step, found.first_step, found.version, found.window, found.window_from) == (
        50_000,
        5_000,
        100,
        50,
        25_000,
        25,
    )
    assert found.loss_policy == pytest.approx((2.94, 2.05), abs=0.011)
    assert found.standing_s == 0
    assert found.ran_s == 245.0
    still = [*points(100), *(HistoryPoint(250_000 + 5_000 * n, step=5_000 + n, samples=50_000) for n in range(1, 61))]
    stood = facts_of(None, RunSections(), [], still).curves
    assert stood is not None
    assert stood.standing_s == 300.0


def test_learning_is_told_block_by_block() -> None:
    game = games.load("tic_tac_toe")
    rows = read_games(game, events_of(game, 100), OPENING_PLIES).rows
    found = learning_curves(rows, 4)
    assert found.game == [25, 50, 75, 100]
    assert found.version == pytest.approx([13, 38, 63, 88])
    assert found.draws == [float(np.mean(rows["winner"][at : at + 25] == -1)) for at in range(0, 100, 25)]
    assert found.length == [float(np.mean(rows["length"][at : at + 25])) for at in range(0, 100, 25)]
    assert all(0 < value <= 1 for value in found.openings)
    assert all(value is not None and 0 < value < 2 for value in (*found.miscalibration, *found.entropy))
    assert learning_curves(rows[:7], 40).game == [7]
    unsearched = learning_curves(read_games(game, [play_game(game, 1, searched_from=9)]).rows, 1)
    assert (unsearched.entropy, unsearched.miscalibration) == ([None], [None])


def test_findings_and_learning_over_rest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    client = TestClient(site.app, base_url="http://127.0.0.1")
    nothing = client.get(f"/v1/runs/{RUN}/findings").json()
    assert set(nothing.pop("blind")) == {"games", "history"}
    assert nothing == {"findings": [], "games": 0, "steps": None, "note": "", "no_games": "", "dying": []}
    site.plant_games(range(1, 101))
    found = client.get(f"/v1/runs/{RUN}/findings?games=90").json()
    assert (found["games"], found["note"]) == (90, "")
    assert client.get(f"/v1/runs/{RUN}/learning?games=80&blocks=2").json()["game"] == [40, 80]


def test_what_cannot_be_replayed_is_a_note(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_games(range(1, 61))
    reader = SegmentReader(tmp_path / RUN / "segments")
    found = diagnose(None, RUN, RunSections(), games.load("tic_tac_toe"), reader)
    assert (found.games, found.findings) == (0, [])
    assert "games are not looked at" in found.note
    sections = msgspec.json.encode(dump_run(RunSections(run=RunConfig(game=f"{tmp_path / 'own.py'}:Own"))))
    site.ledger.update_run(msgspec.structs.replace(site.ledger.run(RUN).record, sections=sections))
    told = TestClient(site.app, base_url="http://127.0.0.1").get(f"/v1/runs/{RUN}/findings").json()
    assert "Python file" in told["note"]
    assert "azq why" in told["note"]
