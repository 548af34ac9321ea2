"""A learner in lockstep: versions do not depend on the order in which games come, nor on when a learner dies."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_workplace import RUN, Workplace, turn, turns
from replay_games import frame

from azq.wire import keys

GAMES, STEPS, VERSIONS = 6, 4, 4
SETTINGS: dict[str, Any] = {"lockstep_games": GAMES, "lockstep_steps": STEPS, "lr_drops": (), "min_window": 1}


def learned(place: Workplace, *, shuffle: int | None = None, deaths: tuple[int, ...] = (), **options: Any) -> list[tuple[object, ...]]:
    """The versions that come of it; a learner dies after so many turns, and another goes on."""
    torch.set_num_threads(1)  # more of them sum in another order
    learner, done = place.learner(**SETTINGS, **options), 0
    for version in range(1, VERSIONS):
        uids = list(range((version - 1) * GAMES + 1, version * GAMES + 1))
        if shuffle is not None:
            random.Random(shuffle + version).shuffle(uids)
        for uid in uids:
            place.bus.publish(keys.samples(RUN), frame(place.game, uid))
        while len(place.weights()) <= version:
            turn(learner)
            done += 1
            if done in deaths:
                learner = place.learner(**SETTINGS, **options)
            assert done < 200, "no further version came"
    return [(event.version, event.step, event.sha256, event.samples_sha256, event.order_sha256) for event in place.weights()]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return learned(Workplace(tmp_path_factory.mktemp("expected")))


@settings(max_examples=8, deadline=None)
@given(shuffle=st.integers(0, 99), deaths=st.sets(st.integers(1, 16), max_size=4), saving=st.sampled_from([1e-9, 3600.0]))
def test_versions_depend_neither_on_the_order_of_games_nor_on_deaths(expected, tmp_path_factory, shuffle, deaths, saving):
    place = Workplace(tmp_path_factory.mktemp("other"))
    assert learned(place, shuffle=shuffle, deaths=tuple(deaths), checkpoint_every_s=saving) == expected


def test_each_version_tells_what_it_was_made_of(expected):
    assert [(version, step) for version, step, *_ in expected] == [(1, 0), (2, STEPS), (3, 2 * STEPS), (4, 3 * STEPS)]
    assert expected[0][3:] == ("", "")
    assert len({version[3:] for version in expected}) == VERSIONS


def test_nothing_is_trained_before_all_games_of_a_version_are_there(tmp_path):
    place = Workplace(tmp_path)
    learner = place.learner(**SETTINGS)
    place.finish_games(2, GAMES)
    turns(learner, 3)
    assert (learner.status().step, learner.status().stall_selfplay) == (0, False)
    place.finish_games(1, 1)
    turns(learner, 8)
    assert learner.status().step == STEPS
    assert [event.version for event in place.weights()] == [1, 2]


def test_a_learner_that_is_stopped_within_a_version_publishes_and_saves_whole_ones(tmp_path):
    place = Workplace(tmp_path)
    learner = place.learner(**SETTINGS)
    place.finish_games(1, GAMES)
    turn(learner)  # the first round of training, of unknown speed, is one step
    assert learner.status().step == 1
    learner.finish()
    assert [event.step for event in place.weights()] == [0]
    assert place.learner(**SETTINGS).status().step == 0
