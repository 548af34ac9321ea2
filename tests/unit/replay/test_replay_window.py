"""The window holds the newest samples, draws them uniformly, and is the same after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_games import drawn_from, entry, play_game, samples_of_one

from azq import games
from azq.config import LearnerConfig
from azq.errors import IllegalActionError, WireError
from azq.replay.samples import Columns, Rules, Samples, count_samples
from azq.replay.segments import SegmentLog
from azq.replay.window import Window, rebuild, stall_selfplay, steps_allowed, window_size


def arrays(samples):
    return samples.packed, samples.policies, samples.values, samples.masks


def test_samples_are_what_the_rules_say_of_each_searched_ply():
    game = games.load("connect_four")
    event = play_game(game, 3, searched_from=2)
    samples = samples_of_one(game, event, 0.25)
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
        samples_of_one(game, changed(event, actions=np.zeros(plies, "<u2").tobytes()), 0.0)
    with pytest.raises(WireError, match="claims returns"):
        samples_of_one(game, msgspec.structs.replace(event, returns=tuple(-x + 0.5 for x in event.returns)), 0.0)
    with pytest.raises(WireError, match="policies has"):
        samples_of_one(game, changed(event, policies=event.record.policies[:-2]), 0.0)
    with pytest.raises(WireError, match="no distribution"):
        samples_of_one(game, changed(event, policies=np.zeros((plies, 7), "<f2").tobytes()), 0.0)
    with pytest.raises(WireError, match="no distribution"):
        samples_of_one(game, changed(event, policies=np.full((plies, 7), np.nan, "<f2").tobytes()), 0.0)
    with pytest.raises(WireError, match="root value"):
        samples_of_one(game, changed(event, root_values=np.full(plies, 7, "<f4").tobytes()), 0.0)
    with pytest.raises(WireError, match="count from 1"):
        samples_of_one(game, changed(event, uid=0), 0.0)


def test_policy_on_an_illegal_action_is_refused():
    game = games.load("tic_tac_toe")
    event = play_game(game, 1)
    policies = np.frombuffer(event.record.policies, "<f2").reshape(-1, 9).copy()
    policies[1] = 0
    policies[1, int(np.frombuffer(event.record.actions, "<u2")[0])] = 1
    with pytest.raises(WireError, match="illegal action"):
        samples_of_one(game, changed(event, policies=policies.tobytes()), 0.0)


def stored_games(tmp_path, game, count):
    log = SegmentLog(tmp_path, game.name, roll_bytes=4000)
    events = [play_game(game, uid, searched_from=uid % 3) for uid in range(1, count + 1)]
    log.append([entry(uid, game, searched_from=uid % 3) for uid in range(1, count + 1)])
    log.close()
    return events


@pytest.mark.parametrize("capacity", [17, 100, 10_000])
def test_rebuilt_window_equals_the_one_that_grew(tmp_path, capacity):
    game = games.load("tic_tac_toe")
    events = stored_games(tmp_path, game, 40)
    grown = Window(game, capacity)
    for event in events:
        grown.add(samples_of_one(game, event, 0.25))
    rebuilt = Window(game, capacity, Columns(root_value_fraction=0.25))
    rebuild(rebuilt, SegmentLog(tmp_path, game.name), game)
    assert len(rebuilt) == len(grown)
    drawn = [drawn_from(window, np.random.default_rng(5), 64, 90) for window in (grown, rebuilt)]
    for one, other in zip(arrays(drawn[0]), arrays(drawn[1]), strict=True):
        assert np.array_equal(one, other)
    ages = np.arange(len(grown))
    for one, other in zip(arrays(grown.newest(ages)), arrays(rebuilt.newest(ages)), strict=True):
        assert np.array_equal(one, other)


@dataclass
class Ruled:
    """All that a window asks of a game: one of so many actions, 3 bytes and 2 values."""

    actions: int

    def num_distinct_actions(self) -> int:
        return self.actions

    def packed_size(self) -> int:
        return 3

    def value_size(self) -> int:
        return 2


def ring(capacity: int, actions: int = 9) -> Window:
    return Window(cast(Rules, Ruled(actions)), capacity)


def numbered(first: int, last: int) -> Samples:
    """Samples that carry their numbers in all columns."""
    numbers = np.arange(first, last + 1)
    columns = {"packed": (np.uint8, 3), "policies": (np.float16, 9), "values": (np.float32, 2), "masks": (np.uint8, 2)}
    return Samples(**{name: np.repeat(numbers[:, None], width, axis=1).astype(kind) for name, (kind, width) in columns.items()})


def numbers(samples: Samples) -> list[int]:
    rows = [array.tolist() for array in arrays(samples)]
    assert all(len({value for row in sample for value in row}) == 1 for sample in zip(*rows, strict=True)), "columns belong together"
    return [int(row[0]) for row in rows[0]]


def held(window: Window) -> list[int]:
    return numbers(window.newest(np.arange(len(window))))


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=8))
def test_a_ring_holds_the_newest_of_any_adds(capacity, counts):
    window, last = ring(capacity), 0
    for count in counts:
        window.add(numbered(last + 1, last + count))
        last += count
    assert held(window) == list(range(last, max(0, last - capacity), -1))
    assert (len(window), window.total) == (min(last, capacity), last)


def test_gathering_is_the_newest_by_age_of_the_window_as_it_was():
    window = ring(5)
    window.add(numbered(1, 7))
    into = {name: np.zeros((3, *shape), kind) for name, (kind, shape) in window.shapes.items()}
    window.gather(np.array([4, 0, 2]), into, total=7)
    assert numbers(Samples(**into)) == [3, 7, 5]
    window.add(numbered(8, 9))
    window.gather(np.array([4, 0, 2]), into, total=7)
    assert numbers(Samples(**into)) == [8, 7, 5]  # 3 is there no more, and 8 in its place
    assert numbers(window.newest(np.array([0, 2]), 7)) == [7, 5]
    assert numbers(window.newest(np.array([0, 2]))) == [9, 7]


@pytest.mark.parametrize(("actions", "mask"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_memory_of_a_sample(actions, mask):
    window = ring(5, actions)
    assert window.shapes["masks"] == (np.uint8, (mask,))
    assert window.bytes_per_sample == 3 + 2 * actions + 4 * 2 + mask


@pytest.mark.parametrize(
    ("total", "size"), [(0, 0), (99, 99), (100, 100), (101, 100), (201, 100), (202, 101), (1999, 999), (2000, 1000), (9000, 1000)]
)
def test_the_window_is_a_share_of_all_samples_within_its_bounds(total, size):
    assert window_size(total, LearnerConfig(min_window=100, max_window=1000)) == size


def test_rebuilding_tells_what_it_does_every_few_games(tmp_path):
    game = games.load("tic_tac_toe")
    stored_games(tmp_path, game, 33)
    told: list[str] = []
    rebuild(Window(game, 9999), SegmentLog(tmp_path, game.name), game, progress=told.append)
    assert told == ["the window's games"] * 2


configs = st.builds(
    LearnerConfig,
    batch_size=st.integers(1, 4096),
    samples_per_insert=st.floats(0.05, 40.0),
    limiter_slack=st.integers(1, 300_000),
    min_window=st.integers(1, 50_000),
)


@given(configs, st.integers(0, 10**9), st.integers(0, 10**9))
def test_never_are_both_sides_stalled(config, inserted, consumed):
    assert not (stall_selfplay(inserted, consumed, config) and not steps_allowed(inserted, consumed, config))


@given(configs, st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_learner_never_exceeds_the_ratio_nor_starts_before_the_window(config, inserted, consumed):
    if steps_allowed(inserted, consumed, config):
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
            if steps_allowed(inserted, consumed, config):
                consumed += config.batch_size
    assert consumed <= config.samples_per_insert * inserted
    if stall_selfplay(inserted, consumed, config):
        assert inserted - consumed / config.samples_per_insert <= config.limiter_slack + game + config.min_window


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
