"""The limiter never stalls both sides and holds the ratio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import LearnerConfig
from azq.replay.limiter import may_train, stall_selfplay, steps_allowed

configs = st.builds(
    LearnerConfig,
    batch_size=st.integers(1, 4096),
    samples_per_insert=st.floats(0.05, 40.0),
    limiter_slack=st.integers(1, 300_000),
    min_window=st.integers(1, 50_000),
)


@given(configs, st.integers(0, 10**9), st.integers(0, 10**9))
def test_never_are_both_sides_stalled(config, inserted, consumed):
    assert not (stall_selfplay(inserted, consumed, config) and not may_train(inserted, consumed, config))


@given(configs, st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_learner_never_exceeds_the_ratio_nor_starts_before_the_window(config, inserted, consumed):
    if may_train(inserted, consumed, config):
        assert consumed + config.batch_size <= config.samples_per_insert * inserted
        assert inserted >= config.min_window


@given(configs, st.integers(1, 2000), st.integers(1, 20))
def test_ratio_converges_whoever_is_faster(config, game, batches_per_turn):
    """Self-play adds `game` samples a turn unless stalled, the learner trains unless stalled: the gap stays bounded by the slack."""
    inserted = consumed = 0
    for _ in range(400):
        if not stall_selfplay(inserted, consumed, config):
            inserted += game
        for _ in range(batches_per_turn):
            if may_train(inserted, consumed, config):
                consumed += config.batch_size
    assert consumed <= config.samples_per_insert * inserted
    if stall_selfplay(inserted, consumed, config):
        assert inserted - consumed / config.samples_per_insert <= config.limiter_slack + game + config.min_window


def test_a_fast_learner_reaches_the_ratio():
    config = LearnerConfig(batch_size=512, samples_per_insert=4.0, min_window=1000)
    inserted = consumed = 0
    for _ in range(1000):
        inserted += 700
        while may_train(inserted, consumed, config):
            consumed += config.batch_size
    assert abs(consumed / inserted - 4.0) < 0.01


CONFIG = LearnerConfig(batch_size=100, samples_per_insert=4.0, min_window=1000, limiter_slack=500)


@pytest.mark.parametrize(
    ("inserted", "consumed", "steps"),
    [
        (999, 0, 0),  # the window has not its minimum
        (1000, 0, 40),
        (1000, 3900, 1),
        (1000, 3901, 0),  # less than a batch is left
        (1000, 9000, 0),
    ],
)
def test_steps_are_whole_batches_within_the_ratio(inserted, consumed, steps):
    assert steps_allowed(inserted, consumed, CONFIG) == steps
    assert may_train(inserted, consumed, CONFIG) is (steps > 0)


@pytest.mark.parametrize(
    ("inserted", "consumed", "stalled"),
    [
        (999, 0, False),  # the learner could not train
        (1500, 4000, False),  # 500 ahead: as many as the slack
        (1501, 4000, True),
        (1500, 3999, True),
        (1500, 6000, False),  # the learner waits
    ],
)
def test_self_play_waits_when_it_is_ahead_by_more_than_the_slack(inserted, consumed, stalled):
    assert stall_selfplay(inserted, consumed, CONFIG) is stalled
