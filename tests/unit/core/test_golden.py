"""Whole trees against committed ones, bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden import trees


@pytest.mark.parametrize("name", [*trees.CASES, *trees.SAMPLED])
def test_the_tree_is_the_committed_one(name: str) -> None:
    expected = json.loads(trees.path(name).read_text("utf-8"))
    found = trees.build(name)
    assert list(found) == list(expected)
    for key, array in found.items():
        np.testing.assert_array_equal(array, trees.from_plain(expected[key], array), err_msg=key)


@pytest.mark.parametrize("name", trees.CASES)
def test_a_tree_is_consistent(name: str) -> None:
    tree = trees.build(name)
    parent, visits = tree["parent"], tree["visits"]
    assert parent[0] == -1
    assert (parent[1:] < np.arange(1, len(parent))).all()
    terminal = tree["actor"] < 0
    solved = tree["lower"] == tree["upper"]  # the root visits these without descending
    np.testing.assert_array_equal(tree["child_visits"][~solved].sum(axis=1), visits[~solved] - 1)
    edges = tree["child_visits"][parent[1:], tree["action"][1:]]
    np.testing.assert_array_equal(edges, visits[1:])
    np.testing.assert_allclose(tree["prior"][~terminal].sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("name", trees.SAMPLED)
def test_a_sampled_tree_is_consistent(name: str) -> None:
    tree, (_, _, settings) = trees.build(name), trees.SAMPLED[name]
    visits = tree["visits"]
    assert visits[0] == settings.num_simulations + 1
    np.testing.assert_array_equal(tree["child_visits"].sum(axis=1), visits - 1)  # each node's own evaluation is a visit more
    np.testing.assert_allclose(tree["prior"].sum(axis=1), 1.0, rtol=1e-5)
    assert (tree["prior"] > 0).sum(axis=1).min() >= 2  # plies without a choice are passed
    later = np.flatnonzero(tree["actor"] != tree["actor"][0])
    assert len(later) or name.endswith("2048")  # for one player
    assert len(visits) > visits[0] or not name.endswith(("blob", "beasty_bar"))  # simulations go on through others' nodes
