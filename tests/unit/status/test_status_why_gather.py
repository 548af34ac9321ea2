"""What is gathered of a run becomes facts; faults that were planted are found, and sound runs are not accused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import planted_runs
import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from replay_games import play_game

from azq import games
from azq.config import RunConfig, RunSections, dump_run
from azq.replay.readers import SegmentReader
from azq.samples.played import read_games
from azq.samples.stats import learning_curves
from azq.status.why.facts import Facts
from azq.status.why.gather import OPENING_PLIES, diagnose, facts_of, probe
from azq.status.why.rules import REPAIRED, RULES, findings
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


def test_a_history_becomes_first_and_last_losses_and_the_size_of_the_window() -> None:
    curves = facts_of(None, RunSections(), [], points(100), [GradeResult(3, 64, 200, 10, 1), GradeResult(2, 64, 200, 90, 1)])
    assert curves.errors is not None
    assert (curves.errors.count, curves.errors.of) == (10, 200)
    found = curves.curves
    assert found is not None
    assert (found.samples, found.step, found.first_step, found.version, found.window) == (50_000, 5_000, 100, 50, 25_000)
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
    assert nothing == {"findings": [], "games": 0, "steps": None, "note": "", "no_games": "", "headline": "", "dying": []}
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


PLANTED_GAMES = Path(__file__).parents[2] / "games"
NOTHING: dict[str, Any] = {}


def own(name: str, **more: Any) -> RunSections:
    """A game of ours that has a fault, by the preset of games in Python."""
    return planted_runs.sections_of(f"{PLANTED_GAMES / 'planted.py'}:{name}", **more)


def known(name: str, **more: Any) -> RunSections:
    """A game of the core, wrongly set."""
    return planted_runs.sections_of(name, **more)


TTT = "tic_tac_toe"
QUICK = {"num_simulations": 8}
#: rule, setting that it names, settings of the run, rounds of 64 games
PLANTED: dict[str, tuple[str, str, Callable[[], RunSections], int]] = {
    "no rewards": ("rewards", "run.game", lambda: own("Prizeless", search=QUICK), 4),
    "one observation": ("observations", "run.game", lambda: own("Blind", search=QUICK), 4),
    "one simulation": ("targets", "search.num_simulations", lambda: known(TTT, search={"num_simulations": 1}), 4),
    "values weigh nothing": ("targets", "search.c_scale", lambda: known("connect_four", search={"c_scale": 0.0, **QUICK}), 8),
    "always the same opening": (
        "openings",
        "search.gumbel_scale",
        lambda: known("connect_four", search={"gumbel_scale": 0.0, **QUICK}, selfplay={"random_opening_plies": 0}),
        2,
    ),
    "plies at the cap": ("cap", "run.params.max_plies", lambda: own("Capped", search=QUICK, run={"params": {"max_plies": 5}}), 4),
    "all draws": ("draws", "selfplay.random_opening_plies", lambda: own("Drawish", search=QUICK), 4),
    "one side wins": ("one_side", "selfplay.random_opening_plies", lambda: own("OneSided", search=QUICK), 4),
    "entropy collapsed": (
        "entropy",
        "search.c_puct",
        lambda: known("connect_four", search={"algorithm": "puct", "c_puct": 1e-4, "dirichlet_fraction": 0.0, **QUICK}),
        4,
    ),
    "entropy never fell": (
        "entropy",
        "search.c_puct",
        lambda: known("connect_four", search={"algorithm": "puct", "c_puct": 5000.0, "dirichlet_fraction": 0.0, "num_simulations": 32}),
        8,
    ),
    "values of the wrong sign": ("calibration", "learner.root_value_fraction", lambda: known("connect_four", search=QUICK), 12),
    "window too young": ("window", "learner.max_window", lambda: known(TTT, learner={"max_window": 128}), 12),
    "learner waits": ("limiter", "learner.samples_per_insert", lambda: known(TTT, learner={"samples_per_insert": 0.1}), 8),
    "learner never begins": ("limiter", "learner.min_window", lambda: known(TTT, learner={"min_window": 10**8}), 8),
    "rate of nothing": (
        "loss",
        "learner.learning_rate",
        lambda: known("connect_four", search=QUICK, learner={"learning_rate": 1e-9, "muon_rate": 0.0}),
        8,
    ),
}


def planted(fault: str, tmp_path: Path, patch: pytest.MonkeyPatch) -> Facts:
    """The facts of a run with the fault."""
    _, _, sections, rounds = PLANTED[fault]
    if fault == "values of the wrong sign":
        planted_runs.flip_values(patch, "azq.replay.samples")
    return planted_runs.facts(sections(), tmp_path, rounds)


@pytest.mark.release
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, setting, sections, _ = PLANTED[fault]
    found = findings(planted(fault, tmp_path, monkeypatch))
    assert [(each.rule, each.setting.key) for each in found] == [(rule, setting)], list(map(str, found))
    assert any(letter.isdigit() for letter in found[0].evidence)
    section, _, key = setting.partition(".")
    place = getattr(sections(), section)
    assert key.startswith("params.") or hasattr(place, key)
    assert found[0].setting.value == REPAIRED or found[0].setting.value != found[0].setting.now


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for rule, *_ in PLANTED.values()} == {rule.__name__ for rule in RULES}
    assert len(RULES) == 12


#: rounds of 48 games: until the learner has made some hundred steps
HEALTHY = {
    "tic_tac_toe": 14,
    "connect_four": 8,
    "hex": 6,
    "gomoku": 6,
    "othello": 4,
    "backgammon": 3,
    "beasty_bar": 6,
    "blob": 8,
    "python": 10,
}


@pytest.mark.release
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_of_all_presets_alarm_nobody(name: str, tmp_path: Path) -> None:
    game = f"{PLANTED_GAMES / 'nim.py'}:Nim" if name == "python" else name
    found = findings(planted_runs.facts(planted_runs.sections_of(game), tmp_path, HEALTHY[name], 48))
    assert not found, list(map(str, found))
