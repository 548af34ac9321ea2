"""Several learners on one run's samples: drawn, compared on samples that nobody trained on, taken over, kept over a restart."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_workplace import Workplace, run_dry, stopped, turns

from azq.config import LearnerConfig
from azq.config.run import parse_run
from azq.errors import ConfigError
from azq.learner import checkpoint
from azq.learner.population import population
from azq.learner.population.rules import CHANGE, FARTHEST, VARIED, explored, first_members, held_out, ranked, settings_of
from azq.nets import from_bytes
from azq.wire.messages import PopulationMember

losses = st.lists(st.floats(allow_nan=True), min_size=2, max_size=9)
OPTIONS: dict[str, Any] = {"population": 3, "population_every_steps": 4, "prefetch_batches": 0}


@given(losses)
def test_ranks_are_all_places_by_loss_and_what_diverged_is_last(found):
    order = ranked(found)
    assert sorted(order) == list(range(len(found)))
    sound = [found[place] for place in order if math.isfinite(found[place])]
    assert sound == sorted(sound)
    assert all(not math.isfinite(found[place]) for place in order[len(sound) :])


@given(st.integers(0, 2**63 - 1), st.integers(0, 64), st.integers(0, 10**9), st.floats(1 / FARTHEST, FARTHEST))
def test_what_is_explored_is_near_within_bounds_and_the_same_again(seed, place, step, factor):
    before = PopulationMember(factor, factor, factor)
    after = explored(before, seed, place, step)
    assert after == explored(before, seed, place, step)
    for name in VARIED:
        assert 1 / CHANGE - 1e-9 <= getattr(after, name) / factor <= CHANGE + 1e-9
        assert 1 / FARTHEST <= getattr(after, name) <= FARTHEST
    assert after.since_step == step


@given(st.integers(1, 9), st.integers(0, 2**63 - 1))
def test_the_first_member_has_the_runs_settings_and_more_members_change_none_of_the_others(count, seed):
    members = first_members(count, seed)
    assert settings_of(members[0], LearnerConfig()) == LearnerConfig()
    assert first_members(count + 1, seed)[:count] == members
    assert len({*members}) == count


def test_settings_go_up_and_down_and_not_all_together():
    drawn = [tuple(getattr(explored(PopulationMember(), seed, 1, 9), name) for name in VARIED) for seed in range(200)]
    assert sum(factor > 1 for each in drawn for factor in each) == pytest.approx(300, abs=50)
    assert set(drawn) == set(itertools.product((1 / CHANGE, CHANGE), repeat=len(VARIED)))


def test_a_run_that_goes_on_draws_what_it_drew_before():
    """Figures of an earlier azq: a member that is drawn anew would be another one after a restart."""
    assert first_members(2, 7)[1] == PopulationMember(0.6019055881812534, 0.6113990471062726, 1.9976417469661096)


@given(st.integers(0, 10**7))
def test_what_is_held_out_leaves_something_to_train_on(size):
    assert held_out(size) == min(1024, size // 8)


def test_members_differ_and_the_first_is_what_is_published(place):
    learner = place.learner(**OPTIONS)
    place.finish_games(1, 60)
    run_dry(learner)
    assert {one.step for one in learner.ranks.trainers} == {learner.status().step}
    assert learner.status().step > 8
    weights = [torch.cat([one.flatten() for one in trainer.averaged.parameters()]) for trainer in learner.ranks.trainers]
    assert any(not torch.equal(weights[0], other) for other in weights[1:])
    members = learner.status().members
    assert members[0].loss == min(member.loss for member in members) > 0
    assert max(member.since_step for member in members) % 4 == 0
    learner.finish()
    meta = from_bytes(place.store.blobs[place.weights()[-1].sha256])[0]
    assert all(torch.equal(tensor, meta[name]) for name, tensor in learner.trainer.averaged.state_dict().items())
    assert {f"population/{number}/loss" for number in range(3)} <= place.tracker.seen[-1][1].keys()


def test_the_worst_goes_on_from_the_best_ones_weights_and_what_diverged_is_replaced(place):
    learner = place.learner(**OPTIONS)
    place.finish_games(1, 60)
    turns(learner, 1)
    worst, best = learner.ranks.trainers[0], learner.ranks.trainers[2]
    for parameter in worst.averaged.parameters():
        parameter.data.fill_(float("nan"))
    assert isinstance(learner.ranks, population.Population)
    kept = {name: tensor.clone() for name, tensor in best.tensors().items()}
    mediocre = learner.ranks.trainers[1]
    for parameter in mediocre.averaged.parameters():
        parameter.data.mul_(30.0)
    learner.ranks._compare(held_out(200))
    assert all(torch.equal(learner.trainer.tensors()[name], tensor) for name, tensor in kept.items())
    assert all(torch.equal(learner.ranks.trainers[2].tensors()[name], tensor) for name, tensor in kept.items())
    assert learner.ranks.members[2] != learner.ranks.members[0]
    assert learner.ranks.members[1].since_step == 0


def test_nobody_trains_on_what_tells_who_is_better(place):
    learner = place.learner(**OPTIONS)
    place.finish_games(1, 60)
    orders = []
    take = learner.ranks.feed.take
    learner.ranks.feed.take = lambda order: (orders.append(order), take(order))[1]
    run_dry(learner)
    assert orders
    for order in orders:
        held = learner.intake.window.total - order.total
        assert held == held_out(order.size + held) > 0


def test_a_resumed_population_is_the_one_that_stopped(place):
    early = place.learner(**OPTIONS)
    place.finish_games(1, 40)
    run_dry(early)
    early.run(stopped())
    late = place.learner(**OPTIONS)
    assert late.ranks.members == early.ranks.members
    for ours, theirs in zip(late.ranks.trainers, early.ranks.trainers, strict=True):
        assert ours.step == theirs.step
        assert all(torch.equal(tensor, theirs.tensors()[name]) for name, tensor in ours.tensors().items())
    state = checkpoint.load_newest(late.checkpoints)
    assert state is not None
    assert any(name.startswith("member2/exp_avg/") for name in state.tensors)


def test_more_members_or_none_go_on_from_the_first(place):
    early = place.learner()
    place.finish_games(1, 40)
    run_dry(early)
    early.run(stopped())
    more = place.learner(**OPTIONS)
    assert all(torch.equal(tensor, early.trainer.tensors()[name]) for name, tensor in more.ranks.trainers[2].tensors().items())
    more.run(stopped())
    assert place.learner().ranks.members == ()


def test_in_lockstep_a_population_is_a_function_of_its_games(tmp_path):
    found = []
    for name in "ab":
        place = Workplace(tmp_path / name)
        learner = place.learner(**OPTIONS, lockstep_games=20, lockstep_steps=6, lr_drops=(), min_window=8)
        place.finish_games(1, 60)
        while len(place.weights()) < 3:
            turns(learner, 1)
        found.append([event.sha256 for event in place.weights()][:3])
    assert found[0] == found[1]


def test_a_population_and_ranks_are_one_line():
    with pytest.raises(ConfigError, match=r"population 2 trains in one process, and ranks are 2; set one of the two to 1"):
        parse_run({"learner": {"population": 2, "ranks": 2}}, "here")
