"""Eight bugs, planted: each is found by the hash of a version, and named by what differs."""

import dataclasses
import itertools

import numpy as np
import pytest
from planted_runs import flip_values

from azq.config import LearnerConfig
from azq.learner.data.batches import Draws
from azq.learner.step.loss import Symmetries
from azq.learner.step.optimizer import learning_rate
from azq.parts.lab.validate import validate as alone
from azq.parts.lab.validate.versions import first_difference, lockstep_sections
from azq.replay.samples import samples_of
from azq.replay.window import Window
from azq.search.search import make_search

VERSIONS = 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return played(tmp_path_factory.mktemp("sound"))


def played(folder, versions=VERSIONS):
    sections = lockstep_sections("tic_tac_toe", 0, "local")
    return list(itertools.islice(alone.play_alone(sections, folder), versions))


def flipped_values(patch):
    flip_values(patch, "azq.learner.lockstep")


def one_wrong_symmetry(patch):
    sound = Symmetries.actions
    patch.setattr(Symmetries, "actions", lambda self, values, chosen: sound(self, values, chosen.where(chosen != 3, 0)))


def stale_weights(patch):
    sound = LearnerConfig.version_for
    patch.setattr(LearnerConfig, "version_for", lambda self, uid: max(1, sound(self, uid) - 1))


def dropped_samples(patch):
    sound = Window.add
    patch.setattr(Window, "add", lambda self, samples: sound(self, taken(samples, slice(0, -1))))


def duplicated_samples(patch):
    sound = Window.add
    patch.setattr(Window, "add", lambda self, samples: sound(self, taken(samples, np.r_[0, 0 : len(samples)])))


def wrong_order(patch):
    patch.setattr("azq.learner.lockstep.samples_of", lambda game, events, *rest: samples_of(game, events[::-1], *rest))


def biased_seeds_of_games(patch):
    patch.setattr("azq.actor.groups.make_search", lambda *arguments, **options: make_search(*arguments, **options | {"seed": 1}))


def biased_draws(patch):
    sound = Draws.of

    def of(self, order):
        ages, chosen = sound(self, order)
        return ages // 2, chosen

    patch.setattr(Draws, "of", of)


def wrong_learning_rate(patch):
    patch.setattr("azq.learner.step.trainer.learning_rate", lambda *arguments: 1.001 * learning_rate(*arguments))


def taken(samples, rows):
    columns = {field.name: getattr(samples, field.name) for field in dataclasses.fields(samples)}
    return dataclasses.replace(samples, **{name: column[rows] for name, column in columns.items() if column is not None})


@pytest.mark.parametrize(
    ("plant", "version", "differs"),
    [
        (flipped_values, 2, "samples"),
        (one_wrong_symmetry, 2, "gradients"),
        (stale_weights, 3, "samples"),
        (dropped_samples, 2, "samples"),
        (duplicated_samples, 2, "samples"),
        (wrong_order, 2, "order"),
        (biased_seeds_of_games, 2, "samples"),
        (biased_draws, 2, "order"),
        (wrong_learning_rate, 2, "gradients"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_found_and_named(plant, version, differs, sound, tmp_path, monkeypatch):
    plant(monkeypatch)
    found = first_difference("planted", played(tmp_path, version), sound)
    assert (found.version, found.differs) == (version, differs)


def test_the_same_settings_give_the_same_versions_once_more(sound, tmp_path):
    assert played(tmp_path) == sound
    assert [(one.number, one.step, one.games) for one in sound] == [(1, 0, 0), (2, 16, 32), (3, 32, 64), (4, 48, 96)]
