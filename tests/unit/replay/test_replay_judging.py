"""Games are judged many at a time, and each gets the verdict that it would get alone."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from replay_games import play_game

from azq import games
from azq.replay.judging import judge
from azq.replay.samples import samples_of

GAME = games.load("tic_tac_toe")


def lying(uid: int):
    return msgspec.structs.replace(play_game(GAME, uid), returns=(0.5, 0.5))


@pytest.mark.parametrize(
    ("count", "bad"), [(0, ()), (1, ()), (1, (1,)), (2, (1,)), (3, (3,)), (33, (1, 32, 33)), (64, ()), (70, (5, 6, 40))]
)
def test_each_game_is_judged_as_if_alone(count, bad):
    events = [lying(uid) if uid in bad else play_game(GAME, uid) for uid in range(1, count + 1)]
    judged = judge(GAME, events, 0.25)
    alone = {uid: samples_of(GAME, events[uid - 1], 0.25) for uid in range(1, count + 1) if uid not in bad}
    assert judged.counts == {uid: len(samples) for uid, samples in alone.items()}
    assert list(judged.counts) == list(alone)
    assert list(judged.refused) == list(bad)
    assert all(f"game {uid} of" in reason for uid, reason in judged.refused.items())
    if alone:
        together = np.concatenate([samples.policies for samples in judged.samples])
        assert np.array_equal(together, np.concatenate([samples.policies for samples in alone.values()]))


def test_games_without_fault_are_put_together_as_many_as_are_checked_at_once():
    events = [play_game(GAME, uid) for uid in range(1, 71)]
    judged = judge(GAME, events, 0.25)
    lengths = [sum(list(judged.counts.values())[start : start + 32]) for start in (0, 32, 64)]
    assert [len(samples) for samples in judged.samples] == lengths
