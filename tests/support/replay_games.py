"""Finished games for tests of replay and learner: random moves by the real rules, with made-up targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from azq import games
from azq.replay.samples import NO_COLUMNS, Columns, Samples, count_samples, samples_of
from azq.replay.segments import ROLL_BYTES, LogEntry, SegmentLog
from azq.replay.window import Window
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent


def play_game(game: Any, uid: int, *, searched_from: int = 0, weight_version: int = 1) -> SampleEvent:
    """A random game; plies before `searched_from` and those of chance carry no targets."""
    rng = np.random.default_rng(uid)
    state, num_actions = game.new_initial_state(), game.num_distinct_actions()
    actions, policies, searched = [], [], []
    while not state.is_terminal():
        legal = state.legal_actions()
        policy = np.zeros(num_actions, np.float32)
        searched.append(not state.is_chance_node())
        if searched[-1]:
            policy[legal] = rng.dirichlet(np.ones(len(legal)))
        policies.append(policy)
        actions.append(int(rng.choice(legal)))
        state.apply_action(actions[-1])
    plies = len(actions)
    simulations = np.where(searched, 32, 0).astype("<u2")
    simulations[:searched_from] = 0
    record = GameRecord(
        uid=uid,
        actions=np.asarray(actions, "<u2").tobytes(),
        policies=np.asarray(policies, "<f2").tobytes(),
        root_values=rng.uniform(-1, 1, (plies, game.value_size())).astype("<f4").tobytes(),
        simulations=simulations.tobytes(),
        weight_versions=np.full(plies, weight_version, "<u4").tobytes(),
    )
    return SampleEvent(record=record, returns=tuple(state.returns()), worker="selfplay@test:1", finished_ms=1)


def frame(game: Any, uid: int, **options: Any) -> bytes:
    """The frame of `play_game`."""
    return encode(play_game(game, uid, **options))


def entry(uid: int, game: Any = None, **options: Any) -> LogEntry:
    """The log's entry of `play_game`, of tic-tac-toe where no other game is named."""
    event = play_game(game or games.load("tic_tac_toe"), uid, **options)
    return LogEntry(uid, count_samples(event), encode(event))


def log_of(folder: Path, *uids: int, roll_bytes: int = ROLL_BYTES) -> SegmentLog:
    """A log of tic-tac-toe with so many games more, appended one by one."""
    log = SegmentLog(folder, "tic_tac_toe", roll_bytes=roll_bytes)
    for uid in uids:
        log.append([entry(uid)])
    return log


def drawn_from(window: Window, rng: np.random.Generator, batch: int, size: int) -> Samples:
    """Samples drawn uniformly, with replacement, from the newest."""
    return window.newest(rng.integers(0, min(size, len(window)), batch))


def samples_of_one(game: Any, event: SampleEvent, root_value_fraction: float, columns: Columns = NO_COLUMNS) -> Samples:
    """The samples of one game."""
    return samples_of(game, [event], replace(columns, root_value_fraction=root_value_fraction))[0]
