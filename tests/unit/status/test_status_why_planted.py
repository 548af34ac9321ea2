"""Each planted fault is named by its rule alone, with its figures and one setting that exists; healthy runs of all presets alarm nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import planted_runs
import pytest

from azq.config import RunSections
from azq.replay.samples import samples_of
from azq.status.why.facts import Facts
from azq.status.why.rules import REPAIRED, RULES, findings

GAMES = Path(__file__).parents[2] / "games"
NOTHING: dict[str, Any] = {}


def own(name: str, **more: Any) -> RunSections:
    """A game of ours that has a fault, by the preset of games in Python."""
    return planted_runs.sections_of(f"{GAMES / 'planted.py'}:{name}", **more)


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
    "window too old": (
        "window",
        "learner.window_fraction",
        lambda: known(TTT, learner={"window_fraction": 1.0, "publish_every_steps": 16}),
        14,
    ),
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

        def flipped(*arguments: Any) -> Any:
            samples, counts = samples_of(*arguments)
            return dataclasses.replace(samples, values=-samples.values), counts

        patch.setattr("azq.replay.samples.samples_of", flipped)
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
    game = f"{GAMES / 'nim.py'}:Nim" if name == "python" else name
    found = findings(planted_runs.facts(planted_runs.sections_of(game), tmp_path, HEALTHY[name], 48))
    assert not found, list(map(str, found))
