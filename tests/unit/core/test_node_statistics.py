"""What the search in Python leaves to the core: the arithmetic of a node against numpy, and a game's answers checked and packed."""

from __future__ import annotations

import numpy as np
import pytest

from azq._core import NodeStatistics, ascending_below, pack_bits, pack_list


@pytest.mark.parametrize("count", [1, 7, 8, 30, 200])
def test_a_node_chooses_by_the_formulas_of_its_papers(count: int) -> None:
    rng = np.random.default_rng(count)
    actions = sorted(rng.choice(300, count, replace=False).tolist())
    given = rng.normal(size=300).astype(np.float16)
    node = NodeStatistics(actions)
    node.expand(given, 0.25)
    logits = given[actions].astype(np.float64)
    prior = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    np.testing.assert_allclose(node.prior, prior, rtol=1e-14)
    visits, q = np.zeros(count), np.zeros(count)
    for edge in rng.integers(count, size=40).tolist():
        value = float(rng.uniform(-1, 1))
        node.update(edge, value)
        visits[edge] += 1
        q[edge] += (value - q[edge]) / visits[edge]
    np.testing.assert_array_equal(node.visits, visits)
    np.testing.assert_array_equal(node.q, q)
    seen = visits > 0
    mixed = (0.25 + 40 * (prior * q)[seen].sum() / prior[seen].sum()) / 41
    completed = np.where(seen, q, mixed)
    sigma = (50 + visits.max()) * 0.1 * 0.5 * (completed + 1)
    weights = np.exp(logits + sigma - (logits + sigma).max())
    for ours, theirs in zip(node.improved(50.0, 0.1), (weights / weights.sum(), completed, sigma), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert node.total == 41
    assert node.select_gumbel(50.0, 0.1) == np.argmax(weights / weights.sum() - visits / 41)
    assert node.select_puct(1.25, 0.2) == np.argmax(np.where(seen, q, node.mean - 0.2) + 1.25 * np.sqrt(41) * node.prior / (1 + visits))
    turn = int(visits[0])
    noisy = logits + rng.gumbel(size=count)
    assert node.select_considered(noisy, turn, 50.0, 0.1) == np.argmax(np.where(visits == turn, noisy + sigma, -np.inf))


def test_what_a_node_cannot_take_is_refused() -> None:
    node = NodeStatistics([0, 5])
    with pytest.raises(ValueError, match="fewer logits"):
        node.expand(np.zeros(5, np.float16), 0.0)
    with pytest.raises(IndexError):
        node.update(2, 0.0)
    with pytest.raises(ValueError, match="one number for each"):
        node.prior = np.ones(3)
    with pytest.raises(ValueError, match="legal action"):
        NodeStatistics([])


@pytest.mark.parametrize("size", [1, 8, 13, 192])
def test_bits_are_packed_as_numpy_packs_them(size: int) -> None:
    bits = np.random.default_rng(size).random(size) < 0.5
    wanted = np.packbits(bits, bitorder="little").tolist()
    row = np.full((size + 7) // 8, 255, np.uint8)
    assert pack_bits(bits.astype(np.float32), row) == -1
    assert row.tolist() == wanted
    for plain in (bits.astype(int).tolist(), bits.astype(float).tolist()):
        row[:] = 255
        assert pack_list(plain, row)
        assert row.tolist() == wanted


def test_numbers_that_are_no_bits_are_found() -> None:
    row = np.zeros(1, np.uint8)
    assert pack_bits(np.array([1.0, 0.0, np.nan], np.float32), row) == 2
    for odd in (0.5, 2, 2**80, "1", None, np.float32(1)):
        assert not pack_list([1, odd], row)
    with pytest.raises(ValueError, match="too short"):
        pack_list([0] * 9, row)


def test_lists_of_plain_actions_are_told_from_others() -> None:
    assert ascending_below([0, 3, 8], 9)
    for other in ([3, 3], [4, 3], [0, 9], [-1], [2**80], [1.0], [True], ["1"]):
        assert not ascending_below(other, 9)
