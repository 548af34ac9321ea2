"""The rules on figures alone: silent about few games, about what is played well and about what follows from a named cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from azq.config import RunSections
from azq.status.why.facts import Counted, CurveFacts, Facts, Measured, PlayedFacts, ProbeFacts
from azq.status.why.rules import RULES, findings

PLAYED = PlayedFacts(
    games=1_000,
    wins=(520, 430),
    shared=50,
    rewarded=950,
    capped=Counted(0, 300),
    longest=42,
    openings=300,
    opening_plies=4,
    simulations=60.0,
    legal=6.5,
    sharpness=Measured(0.4, 0.01),
    entropy=0.7,
    slope=Measured(0.95, 0.05),
    spread=0.97,
    versions=(10, 40),
    mistakable=Counted(0, 5_000),
    observations=Counted(4_900, 5_000),
)
CURVES = CurveFacts(
    ran_s=600.0,
    samples=100_000,
    step=5_000,
    first_step=50,
    loss_policy=(1.9, 1.3),
    loss_value=(0.6, 0.3),
    version=40,
    window=50_000,
    standing_s=0.0,
)
PROBE = ProbeFacts(Counted(2, 200), Counted(198, 200), (110, 88), 64, None)
HEALTHY = Facts(RunSections(), PLAYED, CURVES, PROBE)


def having(settings: dict[str, Any] | None = None, *, curves: dict[str, Any] | None = None, **played: Any) -> Facts:
    """The healthy run with other figures."""
    sections = RunSections.model_validate(settings or {})
    return replace(HEALTHY, settings=sections, played=replace(PLAYED, **played), curves=replace(CURVES, **(curves or {})))


def named(facts: Facts) -> dict[str, str]:
    """Rules with their settings."""
    return {each.rule: each.setting.key for each in findings(facts)}


STILL = {"loss_policy": (1.9, 1.89), "loss_value": (0.6, 0.595)}
ALL_DRAWN: dict[str, Any] = {"wins": (2, 3), "shared": 995, "rewarded": 5}
SICK: list[tuple[str, str, Facts]] = [
    ("rewards", "run.game", having(rewarded=0, wins=(0, 0), shared=1_000)),
    ("observations", "run.game", having(mistakable=Counted(600, 5_000))),
    ("observations", "run.game", having(observations=Counted(2, 5_000))),
    ("targets", "search.num_simulations", having({"search": {"num_simulations": 2}}, simulations=2.0)),
    ("targets", "search.c_scale", having({"search": {"c_scale": 0.0}}, curves={"loss_policy": (1.9, 0.71)})),
    ("targets", "search.c_scale", having({"search": {"c_scale": 0.0}}, spread=0.1, curves={"loss_policy": (1.9, 0.71)})),
    ("openings", "selfplay.random_opening_plies", having(openings=3)),
    ("openings", "search.gumbel_scale", having({"search": {"gumbel_scale": 0.0}}, openings=1)),
    ("openings", "search.temperature", having({"search": {"algorithm": "puct", "temperature": 0.0}}, openings=1)),
    ("cap", "run.params.max_plies", having({"run": {"params": {"max_plies": 5}}}, capped=Counted(120, 300))),
    ("cap", "run.game", having(capped=Counted(120, 300))),
    ("limiter", "learner.samples_per_insert", having({"learner": {"samples_per_insert": 0.1}}, curves={"step": 10})),
    (
        "limiter",
        "learner.samples_per_insert",
        having({"learner": {"samples_per_insert": 400.0, "limiter_slack": 1000}}, curves={"standing_s": 400.0}),
    ),
    ("limiter", "learner.min_window", having({"learner": {"min_window": 10**8}}, curves={"step": 0, "samples": 9_000})),
    ("window", "learner.max_window", having({"learner": {"max_window": 600}}, curves={"window": 600})),
    ("draws", "selfplay.random_opening_plies", having(**ALL_DRAWN)),
    ("one_side", "selfplay.random_opening_plies", having(wins=(998, 2), shared=0)),
    ("entropy", "search.c_scale", having({"search": {"c_scale": 50.0}}, sharpness=Measured(0.004, 0.001))),
    ("entropy", "search.num_simulations", having(sharpness=Measured(0.93, 0.004))),
    ("entropy", "search.q_range", having(sharpness=Measured(0.93, 0.004), spread=0.1)),
    ("entropy", "search.num_simulations", having({"search": {"q_range": 0.2}}, sharpness=Measured(0.93, 0.004), spread=0.1)),
    ("calibration", "learner.root_value_fraction", having(slope=Measured(-0.4, 0.1))),
    ("calibration", "learner.td_lambda", having({"learner": {"td_lambda": 0.9}}, slope=Measured(-0.4, 0.1))),
    ("calibration", "learner.value_weight", having({"learner": {"root_value_fraction": 0.0}}, slope=Measured(0.02, 0.03))),
    ("loss", "learner.learning_rate", having(curves=STILL)),
    ("loss", "learner.freeze", having({"learner": {"freeze": "trunk"}}, curves=STILL)),
]


@pytest.mark.parametrize(("rule", "setting", "facts"), SICK)
def test_each_rule_names_its_fault_and_one_setting(rule: str, setting: str, facts: Facts) -> None:
    assert named(facts) == {rule: setting}
    found = findings(facts)[0]
    assert any(letter.isdigit() for letter in found.evidence)
    assert found.setting.value != found.setting.now
    assert str(found).startswith(f"{rule}: {found.evidence}; set {setting} = ")
    assert bool(found.plan) == (rule == "loss")


def test_every_rule_is_among_them_and_a_healthy_run_is_not() -> None:
    assert {rule for rule, *_ in SICK} == {rule.__name__ for rule in RULES}
    assert findings(HEALTHY) == []
    assert findings(Facts(RunSections())) == []
    assert findings(replace(HEALTHY, played=None, probe=None)) == []
    assert findings(replace(HEALTHY, curves=None)) == []


@pytest.mark.parametrize("games", [10, 49])
def test_few_games_alarm_nobody(games: int) -> None:
    few: dict[str, Any] = {
        "games": games,
        "capped": Counted(games // 4, games),
        "mistakable": Counted(0, 9),
        "observations": Counted(1, 9),
        "slope": None,
    }
    for wins, shared, rewarded in (((0, 0), games, 0), ((games, 0), 0, games)):
        if games == 10:
            assert not named(having(wins=wins, shared=shared, rewarded=rewarded, openings=1, sharpness=Measured(0.0, 0.0), **few))
        else:
            assert named(having(wins=wins, shared=shared, rewarded=rewarded, openings=1, **few)).keys() <= {"draws", "one_side"}


def test_a_value_that_is_only_uncertain_alarms_nobody() -> None:
    assert not named(having(slope=Measured(0.1, 0.1)))
    assert not named(having(slope=Measured(-0.5, 0.1), versions=(1, 3)))  # a network that has hardly learned
    assert not named(having(sharpness=Measured(0.02, 0.01)))


@pytest.mark.parametrize("perfect", [0.0, 1.0, -1.0])
def test_a_game_that_is_played_to_its_known_result_is_healthy(perfect: float) -> None:
    wins = {0.0: (0, 0), 1.0: (1_000, 0), -1.0: (0, 1_000)}[perfect]
    shared = 1_000 if perfect == 0 else 0
    one_way = having(wins=wins, shared=shared, rewarded=1_000 - shared, openings=1, sharpness=Measured(0.0, 0.0), curves=STILL)
    assert named(one_way)
    known = replace(PROBE, perfect=perfect)
    assert not named(replace(one_way, probe=known))
    assert not named(replace(one_way, errors=Counted(10, 600)))
    assert named(replace(one_way, errors=Counted(200, 600)))
    by_chance = replace(known, random_shared=Counted(200 if perfect == 0 else 0, 200), random_wins=tuple(wins[i] and 200 for i in range(2)))
    assert named(replace(one_way, probe=by_chance))  # random play ends so, too


def test_what_follows_from_a_cause_is_not_told_beside_it() -> None:
    everything = having({"search": {"num_simulations": 1}}, simulations=1.0, sharpness=Measured(0.95, 0.001), curves=STILL)
    assert named(everything) == {"targets": "search.num_simulations"}
    assert named(having(**ALL_DRAWN, openings=1, slope=Measured(0.0, 0.01), curves=STILL)) == {"openings": "selfplay.random_opening_plies"}
