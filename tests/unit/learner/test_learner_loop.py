"""The learner's loop over a bus in memory: each game once, limiter, publishing, resuming, outages."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import msgspec
import pytest
import torch
from learner_workplace import RUN, Workplace, run_dry, stopped, turns

from azq.config import LearnerConfig
from azq.errors import StateConflict
from azq.learner import checkpoint
from azq.learner.learner import Learner, steps_until_due
from azq.ledger.types import RunState
from azq.nets import from_bytes
from azq.process.liveness import HANG_AFTER_S, WorkWatch
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import LearnerStatus, MatchResult, MatchSpec, WeightEvent


def one_step_a_turn(learner: Learner) -> None:
    """Whatever the clock of a test says of how long steps take."""
    train = learner.ranks.train
    learner.ranks.train = lambda planned: train(dataclasses.replace(planned, steps=1))  # type: ignore[method-assign]


def life_of_thirty_games(place: Workplace) -> Learner:
    """A learner that trained on thirty games and stopped."""
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    learner.run(stopped())
    return learner


def forget_checkpoints(place: Workplace) -> None:
    for path in checkpoint.stored(place.folder / "checkpoints"):
        path.unlink()


def change_checkpoint(place: Workplace, **fields: Any) -> None:
    """Rewrites the only checkpoint with other fields of its state."""
    (path,) = checkpoint.stored(place.folder / "checkpoints")
    saved = checkpoint.load(path)
    checkpoint.save(path.parent, checkpoint.Checkpoint(msgspec.structs.replace(saved.state, **fields), saved.tensors))


def test_first_weights_go_out_before_any_data(place):
    learner = place.learner()
    turns(learner, 1)
    (event,) = place.weights()
    assert (event.version, event.step, event.run) == (1, 0, RUN)
    _, meta = from_bytes(place.store.blobs[event.sha256])
    assert (meta.game, meta.version, meta.network["channels"]) == ("tic_tac_toe", 1, 8)
    assert place.status().waiting


def test_weights_and_checkpoints_are_due_at_multiples_of_steps_and_not_again_once_resumed(place):
    options = {"publish_every_steps": 4, "checkpoint_every_steps": 6}
    learner = place.learner(**options)
    one_step_a_turn(learner)
    learner.clock = lambda: 0.0  # nothing is due by time but what always is at first
    place.finish_games(1, 30)
    run_dry(learner)
    last = learner.status().step
    assert last > 18
    assert [event.step for event in place.weights()] == list(range(0, last + 1, 4))
    assert [checkpoint.load(path).state.step for path in checkpoint.stored(learner.checkpoints)] == list(range(6, last + 1, 6))[-3:]
    learner.finish()
    published = len(place.weights())
    turns(place.learner(**options), 2)
    assert len(place.weights()) == published
    assert steps_until_due(5, learner.config) == 1
    assert steps_until_due(5, LearnerConfig()) > 10**9


def test_the_first_checkpoint_comes_before_the_first_step_and_the_next_ones_soon(place):
    now_s, options = [0.0], {"checkpoint_every_s": 60.0, "publish_every_s": 3600.0, "samples_per_insert": 10_000.0}
    learner = place.learner(**options)
    learner.clock = lambda: now_s[0]
    one_step_a_turn(learner)
    written: list[tuple[float, int]] = []
    save = learner.checkpoints

    def turn_until(end_s: float) -> None:
        while now_s[0] < end_s:
            turns(learner, 1)
            found = checkpoint.stored(save)
            if found and (step := int(found[-1].stem)) not in [step for _, step in written]:
                written.append((now_s[0], step))
            now_s[0] += 5.0

    turn_until(5.0)
    assert written == [(0.0, 0)]
    assert place.weights()[0].step == 0
    place.finish_games(1, 30)
    turn_until(300.0)
    assert [at_s for at_s, _ in written] == [0.0, 10.0, 30.0, 70.0, 130.0, 190.0, 250.0]


def test_a_learner_that_dies_after_each_long_step_loses_one_step_each_time_and_repeats_no_checkpoint(place):
    options = {"checkpoint_every_s": 60.0, "samples_per_insert": 10_000.0}
    place.finish_games(1, 30)
    turns(place.learner(**options), 1)
    for life in range(1, 4):
        learner, now_s = place.learner(**options), [0.0]
        assert learner.status().step == life - 1
        learner.clock = lambda now_s=now_s: now_s[0]
        learner._done_s["checkpoint"] = 0.0
        one_step_a_turn(learner)
        before = checkpoint.stored(learner.checkpoints)
        turns(learner, 1)
        assert checkpoint.stored(learner.checkpoints) == before  # it holds what it began with
        now_s[0] = 40.0
        learner.ranks.train = lambda planned: 0  # it dies in the second step
        turns(learner, 1)
        assert int(checkpoint.stored(learner.checkpoints)[-1].stem) == life


def test_long_work_is_known_to_be_new_until_it_was_done_once(place):
    learner, progress = place.learner(samples_per_insert=10_000.0), WorkWatch()
    place.finish_games(1, 30)
    stop = threading.Event()
    untried: list[int] = []
    known: list[int] = []
    train = learner.ranks.train

    def trains(planned):
        (untried if progress.untried else known).append(planned.step)
        return train(planned)

    learner.ranks.train = trains
    learner.run(stop, lambda status: stop.set() if known else None, progress)
    assert untried[0] == 0
    assert known
    assert progress._marks > 2 * len(untried)  # by phases, not by turns alone


def test_a_step_of_new_shapes_may_take_longer_than_the_watchdog_waits(place, monkeypatch):
    """The first step, and the next one of smaller passes once the device was short of memory, are no hang."""
    place.finish_games(1, 30)
    learner, stop, now_s, said = place.learner(samples_per_insert=10_000.0), threading.Event(), [100.0], []
    watch = WorkWatch(lambda: said.append(now_s[0]), lambda: now_s[0])
    slow_s, losses = 10 * HANG_AFTER_S, learner.trainer._losses
    silent: dict[int, float] = {}  # of passes by their rows, those of the first

    def pass_of(part):
        if len(part) == learner.config.batch_size and learner.trainer.step:
            raise torch.OutOfMemoryError("CUDA out of memory")
        if len(part) not in silent:
            for _ in range(int(slow_s)):
                now_s[0] += 1.0
                watch.check()
            silent[len(part)] = now_s[0] - said[-1]
        return losses(part)

    def turned(status):
        learner.report()  # the first step is known to be done,
        watch._longest.clear()  # and to have been long is forgotten
        if len(silent) > 1:
            stop.set()

    monkeypatch.setattr(learner.trainer, "_losses", pass_of)
    learner.run(stop, turned, watch)
    assert list(silent) == [learner.config.batch_size, learner.config.batch_size // 2]
    assert max(silent.values()) < HANG_AFTER_S


def test_selfplay_is_stalled_when_it_runs_ahead_and_released_when_it_is_caught_up(place):
    learner = place.learner(limiter_slack=10)
    place.finish_games(1, 40)
    learner.taking.turn()
    learner.report()
    assert place.status().stall_selfplay
    assert place.bus.get(keys.stall(RUN)) is not None
    run_dry(learner)
    learner.report()
    assert not place.status().stall_selfplay
    assert place.bus.get(keys.stall(RUN)) is None
    said = place.status()
    place.bus.delete(keys.learner_status(RUN))  # as its life ends
    assert decode(place.bus.get(keys.learned(RUN)), LearnerStatus) == said


def test_resumed_learner_has_the_counters_and_weights_of_an_uninterrupted_one(tmp_path):
    whole, halves = Workplace(tmp_path / "whole"), Workplace(tmp_path / "halves")
    one = whole.learner()
    for first, last in ((1, 20), (21, 40)):
        whole.finish_games(first, last)
        run_dry(one)
    early = halves.learner()
    halves.finish_games(1, 20)
    run_dry(early)
    early.run(stopped())
    late = halves.learner()
    halves.finish_games(21, 40)
    run_dry(late)
    ours, theirs = one.status(), late.status()
    for field in ("step", "samples_inserted", "samples_consumed", "games_inserted", "duplicates_dropped", "window"):
        assert getattr(ours, field) == getattr(theirs, field), field
    tensors, others = one.trainer.tensors(), late.trainer.tensors()
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)
    assert [event.version for event in halves.weights()] == [1, 2]
    turns(late, 1)
    late.publish()
    assert [event.version for event in halves.weights()] == [1, 2, 3]


def test_stopping_drains_the_stream_publishes_and_writes_a_checkpoint(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    place.finish_games(31, 1000)
    learner.run(stopped())
    assert place.bus.length(keys.samples(RUN)) == 0
    assert place.ledger.counts(RUN).inserted == 1000
    assert [event.version for event in place.weights()] == [1, 2]
    state = checkpoint.load_newest(place.folder / "checkpoints").state
    assert (state.step, state.weight_version) == (learner.status().step, 2)
    assert place.status().games_inserted == 1000


def test_a_stop_within_the_training_phase_is_noticed(place):
    learner = place.learner(samples_per_insert=10_000.0)
    place.finish_games(1, 30)
    stop = threading.Event()
    seen: list[LearnerStatus] = []

    def on_turn(status: LearnerStatus) -> None:
        seen.append(status)
        if status.step > 20:
            stop.set()

    learner.run(stop, on_turn)
    assert seen[-1].step < 5000


def test_without_a_checkpoint_training_goes_on_from_the_published_weights(place, capsys):
    first = life_of_thirty_games(place)
    forget_checkpoints(place)
    second = place.learner(seed=2)
    assert second.status().step == first.status().step
    ours, theirs = first.trainer.averaged.state_dict(), second.trainer.averaged.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert "no_checkpoint" in capsys.readouterr().out
    assert second.status().games_inserted == 30


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_learner_that_starts_names_and_takes_no_weights_that_cannot_be_served(place, checkpointed):
    first = life_of_thirty_games(place)
    if not checkpointed:
        forget_checkpoints(place)
    sha256, uri = place.store.put(b"half of some weights")
    place.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, 10_013, sha256, uri, 0, 0)))
    second = place.learner(seed=2)
    assert second.status().step == first.status().step > 0
    assert second.status().weight_version == first.status().weight_version
    assert second.publisher.next_version() == 10_014


def test_a_version_that_the_control_plane_forgot_is_not_given_again(place):
    first = place.learner()
    first.save()
    first.publish()
    change_checkpoint(place, weight_version=7)
    second = place.learner()
    assert [event.version for event in place.weights()] == [1]
    assert second.status().weight_version == 7
    assert second.publisher.next_version() == 8


def test_without_checkpoint_and_blobs_it_starts_over_under_a_higher_version(place):
    life_of_thirty_games(place)
    forget_checkpoints(place)
    place.store.blobs.clear()
    second = place.learner()
    turns(second, 1)  # workers can have none of those before
    assert second.status().weight_version == 3
    run_dry(second)
    second.publish()
    assert [event.version for event in place.weights()] == [1, 2, 3, 4]


def test_an_unreadable_weight_event_does_not_reset_the_version(place):
    turns(place.learner(), 1)
    place.bus.publish(keys.weights(RUN), b"noise")
    assert place.learner().publisher.next_version() == 2


def test_checkpoints_of_another_game_are_refused(place):
    learner = place.learner()
    learner.save()
    change_checkpoint(place, game="go")
    with pytest.raises(StateConflict, match="'go'"):
        place.learner()


def test_a_paused_run_is_published_and_not_trained_yet_its_games_are_kept(place):
    learner = place.learner()
    place.finish_games(1, 30)
    run_dry(learner)
    place.ledger.set_run_state(RUN, RunState.PAUSED)
    learner.report()
    step = learner.status().step
    assert [event.version for event in place.weights()] == [1, 2]
    place.finish_games(31, 90)
    turns(learner, 3)
    assert learner.status().step == step
    assert learner.status().games_inserted == 90
    place.ledger.set_run_state(RUN, RunState.RUNNING)
    learner.report()
    turns(learner, 2)
    assert learner.status().step > step


def test_progress_follows_the_run_and_drops_the_learning_rate(place):
    learner = place.learner()
    place.ledger.update_run_until(RUN, {"minutes": 10.0})
    place.now_ms += 7 * 60_000
    learner.report()
    place.finish_games(1, 30)
    run_dry(learner)
    assert learner.status().progress == pytest.approx(0.7)
    assert learner.status().learning_rate == pytest.approx(2e-3 * 0.2)


def test_curves_carry_the_arenas_results_once(place):
    learner = place.learner()
    spec = MatchSpec("weights:1", "uct:100", 10, 16, 0, 0)
    place.bus.publish(keys.results(RUN), encode(MatchResult(spec, "weights:1", "uct:100", 8, 0, 2, 1)))
    place.bus.publish(keys.results(RUN), b"noise")
    turns(learner, 1)
    place.finish_games(1, 30)
    run_dry(learner)
    learner.publish()
    (first, second) = (values for _, values in place.tracker.seen)
    assert first["arena/score_uct_100"] == 0.8
    assert "arena/elo" not in second
    assert {"loss/policy", "loss/value", "train/lr", "replay/samples_per_insert", "selfplay/policy_lag"} <= second.keys()
    assert second["loss/policy"] > 0
