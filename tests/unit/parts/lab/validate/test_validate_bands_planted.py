"""Changes that are planted: what learns slower, or looks stronger than it is, lies outside the band; the same program does not."""

import dataclasses

import pytest
from planted_runs import flip_values

from azq.arena.players import make_player
from azq.learner.step.optimizer import learning_rate
from azq.parts.lab.validate import curve
from azq.parts.lab.validate.banded import BandRequest, _band_for, _without_curves
from azq.parts.lab.validate.bands import SeedCurve, judge

GAME = "tic_tac_toe"


def a_tenth_of_the_learning_rate(patch):
    patch.setattr("azq.learner.step.trainer.learning_rate", lambda *arguments: 0.1 * learning_rate(*arguments))


def values_of_the_wrong_sign(patch):
    flip_values(patch, "azq.learner.lockstep")


def more_simulations_than_said(patch):
    patch.setattr(curve, "make_player", lambda name, ground: make_player(name, dataclasses.replace(ground, num_simulations=8)))


def other_seeds_alone(patch):
    """Nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "verdict"),
    [
        (a_tenth_of_the_learning_rate, "slower"),
        (values_of_the_wrong_sign, "slower"),
        (more_simulations_than_said, "faster"),
        (other_seeds_alone, "within"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_change_is_called_what_it_is(plant, verdict, monkeypatch):
    plant(monkeypatch)
    fresh = _without_curves(GAME)
    found = fresh.having([SeedCurve(seed, list(curve.curve(GAME, seed))) for seed in range(101, 106)])
    verdicts = {each.verdict for each in judge(_band_for(fresh, BandRequest(GAME)), found)}
    assert verdict in verdicts
    assert verdicts <= {verdict, "within"}
