"""The window holds the newest samples, draws them uniformly, and is the same after a restart."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_games import play_game

from azq import games
from azq.config import LearnerConfig
from azq.errors import IllegalActionError, WireError
from azq.replay.samples import count_samples, mean_weight_version, samples_of
from azq.replay.segments import LogEntry, SegmentLog
from azq.replay.window import Window, rebuild, window_size
from azq.wire.codec import encode


def arrays(samples):
    return samples.packed, samples.policies, samples.values, samples.masks


def test_samples_are_what_the_rules_say_of_each_searched_ply():
    game = games.load("connect_four")
    event = play_game(game, 3, searched_from=2)
    samples = samples_of(game, event, 0.25)
    record = event.record
    roots = np.frombuffer(record.root_values, "<f4")
    state = game.new_initial_state()
    index = 0
    for ply, action in enumerate(np.frombuffer(record.actions, "<u2")):
        if ply >= 2:
            assert np.array_equal(samples.packed[index], state.packed_observation())
            legal = np.unpackbits(samples.masks[index], count=7, bitorder="little")
            assert legal.tolist() == list(state.legal_actions_mask())
            wanted = 0.75 * event.returns[state.current_player()] + 0.25 * roots[ply]
            assert samples.values[index, 0] == pytest.approx(wanted, abs=1e-6)
            index += 1
        state.apply_action(int(action))
    assert index == len(samples) == count_samples(event)


def changed(event, **fields):
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, **fields))


def test_events_that_contradict_the_rules_are_refused():
    game = games.load("connect_four")
    event = play_game(game, 3)
    plies = len(event.record.actions) // 2
    with pytest.raises(IllegalActionError):
        samples_of(game, changed(event, actions=np.zeros(plies, "<u2").tobytes()), 0.0)
    with pytest.raises(WireError, match="claims returns"):
        samples_of(game, msgspec.structs.replace(event, returns=tuple(-x + 0.5 for x in event.returns)), 0.0)
    with pytest.raises(WireError, match="policies has"):
        samples_of(game, changed(event, policies=event.record.policies[:-2]), 0.0)
    with pytest.raises(WireError, match="no distribution"):
        samples_of(game, changed(event, policies=np.zeros((plies, 7), "<f2").tobytes()), 0.0)
    with pytest.raises(WireError, match="no distribution"):
        samples_of(game, changed(event, policies=np.full((plies, 7), np.nan, "<f2").tobytes()), 0.0)
    with pytest.raises(WireError, match="root value"):
        samples_of(game, changed(event, root_values=np.full(plies, 7, "<f4").tobytes()), 0.0)
    with pytest.raises(WireError, match="count from 1"):
        samples_of(game, changed(event, uid=0), 0.0)


def test_policy_on_an_illegal_action_is_refused():
    game = games.load("tic_tac_toe")
    event = play_game(game, 1)
    policies = np.frombuffer(event.record.policies, "<f2").reshape(-1, 9).copy()
    policies[1] = 0
    policies[1, int(np.frombuffer(event.record.actions, "<u2")[0])] = 1
    with pytest.raises(WireError, match="illegal action"):
        samples_of(game, changed(event, policies=policies.tobytes()), 0.0)


def test_mean_weight_version_leaves_unsearched_plies_out():
    event = play_game(games.load("tic_tac_toe"), 1, searched_from=1, weight_version=6)
    assert mean_weight_version(event) == 6.0


@given(st.integers(0, 5_000_000))
def test_window_size_stays_in_its_bounds(total):
    config = LearnerConfig(min_window=1000, max_window=100_000, window_fraction=0.5)
    size = window_size(total, config)
    assert size <= total
    assert size <= config.max_window
    assert size >= min(total, config.min_window)
    assert size == min(total, max(1000, min(100_000, total // 2)))


def stored_games(tmp_path, game, count):
    log = SegmentLog(tmp_path, game.name, roll_bytes=4000)
    events = [play_game(game, uid, searched_from=uid % 3) for uid in range(1, count + 1)]
    log.append([LogEntry(event.record.uid, count_samples(event), encode(event)) for event in events])
    log.close()
    return events


@pytest.mark.parametrize("capacity", [17, 100, 10_000])
def test_rebuilt_window_equals_the_one_that_grew(tmp_path, capacity):
    game = games.load("tic_tac_toe")
    events = stored_games(tmp_path, game, 40)
    grown = Window(game, capacity)
    for event in events:
        grown.add(samples_of(game, event, 0.25))
    rebuilt = Window(game, capacity)
    rebuild(rebuilt, SegmentLog(tmp_path, game.name), game, 0.25, capacity=capacity)
    assert len(rebuilt) == len(grown)
    drawn = [window.sample(np.random.default_rng(5), 64, 90) for window in (grown, rebuilt)]
    for one, other in zip(arrays(drawn[0]), arrays(drawn[1]), strict=True):
        assert np.array_equal(one, other)
    ages = np.arange(len(grown))
    for one, other in zip(arrays(grown.newest(ages)), arrays(rebuilt.newest(ages)), strict=True):
        assert np.array_equal(one, other)


def test_sampling_is_uniform_over_the_newest(tmp_path):
    game = games.load("tic_tac_toe")
    window = Window(game, 1000)
    for uid in range(1, 30):
        window.add(samples_of(game, play_game(game, uid), 0.0))
    size = 50
    newest = window.newest(np.arange(size))
    drawn = window.sample(np.random.default_rng(1), 20_000, size)
    keys = {row.tobytes() + value.tobytes(): 0 for row, value in zip(newest.policies, newest.values, strict=True)}
    for row, value in zip(drawn.policies, drawn.values, strict=True):
        keys[row.tobytes() + value.tobytes()] += 1
    expected = 20_000 / len(keys)
    assert all(0.75 * expected < count < 1.25 * expected for count in keys.values())


def test_an_empty_window_says_so():
    with pytest.raises(ValueError, match="empty"):
        Window(games.load("tic_tac_toe"), 10).sample(np.random.default_rng(0), 4, 10)
