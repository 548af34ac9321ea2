"""Samples of games with chance, hidden facts and many seats."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from learner_doubles import SecretSum
from replay_games import play_game, samples_of_one

from azq import games
from azq.errors import WireError
from azq.replay.samples import NO_COLUMNS, Columns, count_samples, count_trained, judge, mark_of, mean_weight_version, samples_of
from azq.replay.segments import LogEntry, SegmentLog
from azq.replay.window import Window, rebuild
from azq.wire.codec import encode
from azq.wire.messages import SampleEvent

ALL = ("advantage", "margin", "hidden")


def actions_of(event):
    return np.frombuffer(event.record.actions, "<u2")


def event_where(game, *, capped):
    """The first random game that the safety cap did or did not end."""
    events = (play_game(game, uid) for uid in range(1, 100))
    return next(event for event in events if (actions_of(event)[0] == 3) == capped)


def test_values_of_three_seats_start_with_the_mover():
    game = SecretSum(3)
    event = event_where(game, capped=False)
    samples = samples_of_one(game, event, 0.25)
    roots = np.frombuffer(event.record.root_values, "<f4").reshape(-1, 3)
    plies = [ply for ply in range(8) if ply % 4]  # chance draws at 0 and 4
    assert samples.values.shape == (6, 3)
    for row, ply in enumerate(plies):
        mover = ply % 4 - 1
        for seat in range(3):
            wanted = 0.75 * event.returns[(mover + seat) % 3] + 0.25 * roots[ply, seat]
            assert samples.values[row, seat] == pytest.approx(wanted, abs=1e-6)


def test_plies_of_chance_carry_no_sample():
    game = SecretSum(2)
    event = event_where(game, capped=False)
    samples = samples_of_one(game, event, 0.0, Columns.of(game, ALL))
    assert len(samples) == count_samples(event) == count_trained(game, event) == 4
    assert all(len(column) == 4 for column in (samples.played, samples.margin, samples.outcomes, samples.hidden))
    state, row = game.new_initial_state(), 0
    for action in actions_of(event):
        if not state.is_chance_node():
            assert np.array_equal(samples.packed[row], state.packed_observation())
            row += 1
        state.apply_action(int(action))


def test_a_target_where_chance_acts_is_refused():
    game = SecretSum(2)
    event = event_where(game, capped=False)
    simulations = np.full(6, 8, "<u2").tobytes()
    changed = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, simulations=simulations))
    with pytest.raises(WireError, match="a target at ply 0, where chance acts"):
        samples_of_one(game, changed, 0.0)


@pytest.mark.parametrize("players", [2, 3])
def test_a_game_that_a_safety_cap_ended_gives_no_samples(players):
    game = SecretSum(players)
    event = event_where(game, capped=True)
    columns = Columns.of(game, ALL)
    samples = samples_of_one(game, event, 0.25, columns)
    assert len(samples) == count_trained(game, event) == 0
    assert count_samples(event) == 2 * players
    window = Window(game, 50, columns)
    window.add(samples)
    assert len(window) == 0


def test_columns_are_there_only_where_declared_and_asked_for():
    two, three = SecretSum(2), SecretSum(3)
    assert Columns.of(two, ()) == Columns(outcomes=2)
    assert Columns.of(three, ()) == NO_COLUMNS
    assert Columns.of(three, ALL) == Columns(played=True, margin=True, hidden=4)
    event = event_where(three, capped=False)
    plain, full = samples_of_one(three, event, 0.25), samples_of_one(three, event, 0.25, Columns.of(three, ALL))
    assert plain.played is plain.margin is plain.outcomes is plain.hidden is full.outcomes is None
    for name in ("packed", "policies", "values", "masks"):
        assert np.array_equal(getattr(plain, name), getattr(full, name))
    assert Window(three, 10, Columns.of(three, ALL)).bytes_per_sample - Window(three, 10).bytes_per_sample == 2 + 4 + 1


def test_margins_outcomes_and_hidden_facts_are_the_movers():
    game = SecretSum(2)
    event = event_where(game, capped=False)
    samples = samples_of_one(game, event, 0.0, Columns.of(game, ALL))
    actions = actions_of(event)
    for row, ply in enumerate(ply for ply in range(6) if ply % 3):
        mover = ply % 3 - 1
        own = actions[[1 + mover, 4 + mover]].sum()
        assert samples.margin[row] == pytest.approx(own / 4)
        assert samples.outcomes[row].tolist() == [float(event.returns[mover] > 0), float(event.returns[mover] < 0)]
        secret = actions[ply - ply % 3]
        assert np.unpackbits(samples.hidden[row], count=4, bitorder="little").tolist() == np.eye(4)[secret].tolist()


def test_what_was_played_is_told_of_searched_plies_alone():
    game = SecretSum(2)
    event = event_where(game, capped=False)
    samples = samples_of_one(game, event, 0.0, Columns.of(game, ("advantage",)))
    assert samples.played.tolist() == [int(action) for ply, action in enumerate(actions_of(event)) if ply % 3]


def test_hidden_facts_never_leak_into_the_inputs():
    """Two games that differ in the last secret alone, which no player ever sees: equal inputs, different hidden targets."""
    game = SecretSum(3)
    event = event_where(game, capped=False)
    actions = actions_of(event).copy()
    actions[4] = (actions[4] + 1) % 4
    other = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, actions=actions.tobytes()))
    columns = Columns.of(game, ALL)
    one, two = samples_of_one(game, event, 0.25, columns), samples_of_one(game, other, 0.25, columns)
    assert np.array_equal(one.packed, two.packed)
    assert np.array_equal(one.masks, two.masks)
    assert np.array_equal(one.hidden[:3], two.hidden[:3])
    assert (one.hidden[3:] != two.hidden[3:]).all()


def test_a_log_with_capped_games_counts_the_same_after_a_restart(tmp_path):
    game = SecretSum(3)
    columns = replace(Columns.of(game, ALL), root_value_fraction=0.25)
    events = [play_game(game, uid) for uid in range(1, 31)]
    grown, log = Window(game, 1000, columns), SegmentLog(tmp_path, game.name)
    for event in events:
        samples = samples_of_one(game, event, 0.25, columns)
        log.append([LogEntry(event.record.uid, len(samples), encode(event))])
        grown.add(samples)
    log.close()
    again = SegmentLog(tmp_path, game.name, count=lambda event: count_trained(game, event))
    assert 0 < again.samples == log.samples == len(grown) < sum(map(count_samples, events))
    rebuilt = Window(game, 1000, columns)
    rebuild(rebuilt, again, game)
    ages = np.arange(len(grown))
    one, two = grown.newest(ages), rebuilt.newest(ages)
    for name in ("packed", "policies", "values", "masks", *columns.shapes()):
        assert np.array_equal(getattr(one, name), getattr(two, name))


TIC_TAC_TOE = games.load("tic_tac_toe")


def test_games_are_numbered_from_one():
    event = play_game(TIC_TAC_TOE, 1)
    nameless = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, uid=0))
    with pytest.raises(WireError, match="count from 1"):
        samples_of_one(TIC_TAC_TOE, nameless, 0.0)


def with_policy(uid: int, *targets: tuple[int, float]) -> SampleEvent:
    """A game with a target of its own at its first ply."""
    event = play_game(TIC_TAC_TOE, uid)
    policies = np.frombuffer(event.record.policies, "<f2").reshape(-1, 9).copy()
    policies[0] = 0
    for action, share in targets:
        policies[0, action] = share
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, policies=policies.tobytes()))


@pytest.mark.parametrize(
    ("targets", "is_one"),
    [
        ([(0, 0.5), (8, 0.5)], True),
        ([(0, 1.0), (8, -0.0)], True),
        ([(0, 0.5), (8, 0.5195)], True),  # float16 rounds
        ([(0, 0.5), (8, 0.4805)], True),
        ([(0, 0.5), (8, 0.5215)], False),
        ([(0, 0.5), (8, 0.4785)], False),
        ([(0, 1.5), (8, -0.5)], False),
        ([(0, np.inf)], False),
        ([(0, np.nan)], False),
    ],
)
def test_a_policy_target_is_a_distribution_but_for_rounding(targets, is_one):
    events = [play_game(TIC_TAC_TOE, 1), with_policy(2, *targets)]
    if is_one:
        assert samples_of(TIC_TAC_TOE, events)[1] == [count_samples(event) for event in events]
    else:
        with pytest.raises(WireError, match=r"game 2 of .* has a policy target that is no distribution"):
            samples_of(TIC_TAC_TOE, events)


def test_a_signalling_nan_is_refused_without_a_warning():
    event = play_game(TIC_TAC_TOE, 2)
    policies = np.frombuffer(event.record.policies, "<u2").copy()
    policies[0] = 0x7C01
    changed = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, policies=policies.tobytes()))
    with pytest.raises(WireError, match="no distribution"):
        samples_of_one(TIC_TAC_TOE, changed, 0.0)


def after_one_ply(target: float | np.floating) -> SampleEvent:
    """A game whose target at its second ply gives the action of its first, which is illegal then, so much."""
    event = play_game(TIC_TAC_TOE, 3)
    policies = np.frombuffer(event.record.policies, "<f2").reshape(-1, 9).copy()
    policies[1, actions_of(event)[0]] = target
    return msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, policies=policies.tobytes()))


def test_no_share_of_a_target_is_too_small_to_be_illegal():
    samples_of_one(TIC_TAC_TOE, after_one_ply(-0.0), 0.0)
    with pytest.raises(WireError, match=r"game 3 of .* has a policy target on an illegal action"):
        samples_of_one(TIC_TAC_TOE, after_one_ply(np.finfo(np.float16).smallest_subnormal), 0.0)


def test_the_first_of_several_wrong_games_is_named():
    with pytest.raises(WireError, match="game 2 of"):
        samples_of(TIC_TAC_TOE, [play_game(TIC_TAC_TOE, 1), with_policy(2), with_policy(4)])


@pytest.mark.parametrize(("value", "is_one"), [(1.001, True), (-1.001, True), (1.0011, False), (-1.0011, False), (np.nan, False)])
def test_a_root_value_is_a_result_but_for_rounding(value, is_one):
    event = play_game(TIC_TAC_TOE, 1)
    roots = np.zeros_like(np.frombuffer(event.record.root_values, "<f4"))
    roots[-1] = value
    changed = msgspec.structs.replace(event, record=msgspec.structs.replace(event.record, root_values=roots.tobytes()))
    if is_one:
        assert samples_of_one(TIC_TAC_TOE, changed, 1.0).values[-1, 0] == np.float32(value)
    else:
        with pytest.raises(WireError, match=r"game 1 of .* has a root value outside \[-1, 1\]"):
            samples_of_one(TIC_TAC_TOE, changed, 1.0)


def test_returns_are_compared_as_float32():
    game = SecretSum(3)
    event = event_where(game, capped=False)
    rounded = msgspec.structs.replace(event, returns=tuple(value + 1e-12 for value in event.returns))
    assert len(samples_of_one(game, rounded, 0.0)) == 6
    for returns in (tuple(value + 1e-3 for value in event.returns), (1e300, 0.0, 0.0), event.returns[:2]):
        with pytest.raises(WireError, match="claims returns"):
            samples_of_one(game, msgspec.structs.replace(event, returns=returns), 0.0)


def test_the_ply_of_a_wrong_target_is_counted_in_its_own_game():
    game = SecretSum(2)
    good = event_where(game, capped=False)
    simulations = np.array([0, 8, 8, 8, 8, 8], "<u2").tobytes()
    bad = msgspec.structs.replace(good, record=msgspec.structs.replace(good.record, uid=77, simulations=simulations))
    with pytest.raises(WireError, match=r"game 77 of .* has a target at ply 3, where chance acts"):
        samples_of(game, [good, good, bad])


def test_capped_games_are_left_out_among_others():
    game = SecretSum(2)
    plain, capped = event_where(game, capped=False), event_where(game, capped=True)
    samples, counts = samples_of(game, [capped, plain, capped], replace(Columns.of(game, ALL), root_value_fraction=0.25))
    assert counts == [0, 4, 0]
    alone = samples_of_one(game, plain, 0.25, Columns.of(game, ALL))
    for name in ("packed", "policies", "values", "masks", "played", "margin", "outcomes", "hidden"):
        assert np.array_equal(getattr(samples, name), getattr(alone, name))


def test_marks_name_whose_a_game_is_and_where_it_begins():
    both = [play_game(TIC_TAC_TOE, 1), msgspec.structs.replace(play_game(TIC_TAC_TOE, 2), worker="selfplay@other:2")]
    samples, counts = samples_of(TIC_TAC_TOE, both)
    begins = np.zeros(sum(counts), bool)
    begins[[0, counts[0]]] = True
    assert min(counts) > 1
    assert samples.marks is not None
    assert (samples.marks & 1).astype(bool).tolist() == begins.tolist()
    assert (samples.marks >> 1).tolist() == [mark_of(both[0].worker)] * counts[0] + [mark_of(both[1].worker)] * counts[1]


def test_mean_weight_version_is_that_of_all_searched_plies():
    short, long = (
        play_game(TIC_TAC_TOE, uid, searched_from=searched_from, weight_version=version)
        for uid, searched_from, version in ((1, 4, 2), (2, 0, 7))
    )
    plies = [count_samples(short), count_samples(long)]
    assert mean_weight_version(short, long) == pytest.approx((2 * plies[0] + 7 * plies[1]) / sum(plies))
    assert mean_weight_version(play_game(TIC_TAC_TOE, 1, searched_from=99)) == mean_weight_version() == 0.0
    once = np.ones(len(short.record.simulations) // 2, "<u2").tobytes()
    assert mean_weight_version(msgspec.structs.replace(short, record=msgspec.structs.replace(short.record, simulations=once))) == 2.0


GAME = games.load("tic_tac_toe")


def lying(uid: int) -> SampleEvent:
    return msgspec.structs.replace(play_game(GAME, uid), returns=(0.5, 0.5))


@pytest.mark.parametrize(
    ("count", "bad"), [(0, ()), (1, ()), (1, (1,)), (2, (1,)), (3, (3,)), (33, (1, 32, 33)), (64, ()), (70, (5, 6, 40))]
)
def test_each_game_is_judged_as_if_alone(count, bad):
    events = [lying(uid) if uid in bad else play_game(GAME, uid) for uid in range(1, count + 1)]
    judged = judge(GAME, events, Columns(root_value_fraction=0.25))
    alone = {uid: samples_of_one(GAME, events[uid - 1], 0.25) for uid in range(1, count + 1) if uid not in bad}
    assert judged.counts == {uid: len(samples) for uid, samples in alone.items()}
    assert list(judged.counts) == list(alone)
    assert list(judged.refused) == list(bad)
    assert all(f"game {uid} of" in reason for uid, reason in judged.refused.items())
    if alone:
        together = np.concatenate([samples.policies for samples in judged.samples])
        assert np.array_equal(together, np.concatenate([samples.policies for samples in alone.values()]))


def test_games_without_fault_are_put_together_as_many_as_are_checked_at_once():
    events = [play_game(GAME, uid) for uid in range(1, 71)]
    judged = judge(GAME, events, Columns(root_value_fraction=0.25))
    lengths = [sum(list(judged.counts.values())[start : start + 32]) for start in (0, 32, 64)]
    assert [len(samples) for samples in judged.samples] == lengths


def test_a_part_has_its_rows_of_each_column_that_is_there():
    game = games.load("blob")
    whole = samples_of_one(game, play_game(game, 1), 0.0, Columns(played=True))
    part = whole.part(2, 5)
    assert len(part) == 3
    for name in whole.__dataclass_fields__:
        column = getattr(whole, name)
        assert getattr(part, name) is None if column is None else (getattr(part, name) == column[2:5]).all()
