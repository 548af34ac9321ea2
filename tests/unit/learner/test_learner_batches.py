"""Batches gathered ahead of time: the same ones, in the same order, whatever the window does meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from azq import games
from azq.learner.data.batches import Batch, Draws, Feed, Order, Prefetcher
from azq.nets import NetSpec
from azq.parts.lab.bench.learner import full_window
from azq.replay.samples import Samples
from azq.replay.window import Window

CPU = torch.device("cpu")
DRAWS = Draws(seed=5, symmetries=8)


def window_of(samples: int) -> Window:
    game = games.load("tic_tac_toe")
    return full_window(game, NetSpec.of(game), samples)


def more(count: int, filled: int) -> Samples:
    """Samples that differ from those in the window."""
    return Samples(
        np.full((count, 3), filled, np.uint8),
        np.full((count, 9), filled, np.float16),
        np.full((count, 1), filled, np.float32),
        np.full((count, 2), filled, np.uint8),
    )


def copied(batch: Batch) -> list[np.ndarray]:
    samples = batch.samples
    return [array.copy() for array in (samples.packed, samples.policies, samples.values, samples.masks, batch.chosen)]


def test_a_batch_is_a_function_of_seed_rank_and_step():
    order = Order(7, 32, 100, 100)
    ages, chosen = DRAWS.of(order)
    again, turned = Draws(5, 8).of(order)
    assert np.array_equal(ages, again)
    assert np.array_equal(chosen, turned)
    others = [Draws(6, 8).of(order)[0], Draws(5, 8, rank=1).of(order)[0], DRAWS.of(order.following)[0]]
    assert not any(np.array_equal(ages, other) for other in others)
    assert Draws(5).of(order)[1] is None


def test_draws_are_uniform_over_the_newest_and_the_symmetries():
    ages, chosen = DRAWS.of(Order(0, 80_000, 40, 40))
    assert abs(np.bincount(ages, minlength=40) - 2000).max() < 250
    assert abs(np.bincount(chosen, minlength=8) - 10_000).max() < 500


@pytest.mark.parametrize("ahead", [1, 3])
def test_prefetched_batches_are_those_of_a_direct_feed_while_the_window_grows_and_sizes_change(ahead):
    ours, theirs = window_of(500), window_of(500)
    prefetcher, direct = Prefetcher(ours, DRAWS, CPU, ahead), Feed(theirs, DRAWS)
    script = np.random.default_rng(1)
    step = 0
    for turn in range(60):
        if script.random() < 0.4:
            samples = more(int(script.integers(1, 40)), turn)
            ours.add(samples)
            theirs.add(samples)
        rows, size = int(script.choice([16, 64])), int(script.integers(10, len(ours) + 1))
        for _ in range(int(script.integers(1, 5))):
            order = prefetcher.order(step, rows, size)
            with prefetcher.take(order) as batch, direct.take(order) as wanted:
                assert all(np.array_equal(one, other) for one, other in zip(copied(batch), copied(wanted), strict=True))
            step += 1 + int(script.random() < 0.1)  # now and then steps are skipped, as after a lost rank
    prefetcher.close()


def test_batches_gathered_ahead_are_kept_while_games_come_in(monkeypatch):
    window, gathers = Window(games.load("tic_tac_toe"), 1_000), []
    gather = window.gather
    monkeypatch.setattr(window, "gather", lambda ages, into, *, total: gathers.append(ages) or gather(ages, into, total=total))
    window.add(more(100, 1))
    prefetcher = Prefetcher(window, DRAWS, CPU)
    order = prefetcher.order(0, 64, 100)
    for turn in range(8):
        with prefetcher.take(order) as batch:
            assert (batch.samples.packed == 1).all()
        window.add(more(50, 2 + turn))
        order = order.following
    with prefetcher.take(prefetcher.order(order.step, 64, 100)) as batch:  # a new order sees them
        assert set(np.unique(batch.samples.packed)) == {8, 9}
    prefetcher.close()
    drawn = [DRAWS.of(order)[0].tobytes() for order in (prefetcher.order(step, 64, 100) for step in range(8))]
    assert [ages.tobytes() for ages in gathers[:8]] == drawn, "each once, in order"


def test_another_thread_that_adds_meanwhile_tears_no_batch():
    window = window_of(64)
    stop = threading.Event()

    def add() -> None:
        filled = 0
        while not stop.is_set():
            filled = (filled + 1) % 200
            window.add(more(64, filled))

    adder = threading.Thread(target=add)
    window.add(more(64, 1))
    prefetcher = Prefetcher(window, DRAWS, CPU)
    adder.start()
    try:
        for step in range(30):
            with prefetcher.take(prefetcher.order(step, 512, 64)) as batch:
                samples = batch.samples
                assert len(np.unique(samples.packed)) == 1  # of one add: none is half of another's
                assert (samples.values[:, 0] == samples.packed[:, 0]).all()
    finally:
        stop.set()
        adder.join()
        prefetcher.close()


def test_a_buffer_is_filled_again_only_behind_its_fence():
    log: list[tuple[str, int]] = []
    window = window_of(100)

    def make_fence():
        number = len([entry for entry in log if entry[0] == "sent"])
        log.append(("sent", number))
        return lambda: log.append(("passed", number))

    prefetcher = Prefetcher(window, DRAWS, CPU, 1, make_fence=make_fence)
    for step in range(6):
        with prefetcher.take(prefetcher.order(step, 8, 100)) as batch:
            assert len(batch) == 8
    prefetcher.close()
    passed = [number for kind, number in log if kind == "passed"]
    assert passed[:4] == [0, 1, 2, 3]  # two buffers: those of six batches were filled again at least four times
    assert all(log.index(("sent", number)) < log.index(("passed", number)) for number in passed)


def test_what_gathering_raises_is_raised_where_the_batch_is_taken():
    prefetcher = Prefetcher(Window(games.load("tic_tac_toe"), 10), DRAWS, CPU)
    with pytest.raises(ValueError, match="high <= 0"), prefetcher.take(prefetcher.order(0, 8, 0)):
        pass
    prefetcher.close()
