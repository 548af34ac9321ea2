"""The module for browsers computes what the extension computes, to the last bit: natively, in Node and in Chromium one constant each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import in_browser
from golden import parity, trees
from golden.parity import FAST, SLOW, Parity
from nodejs import in_node

SCRIPT = Path(parity.__file__).with_suffix(".mjs")
TREES = [*trees.CASES, *trees.SAMPLED]


def scripts(cases: Sequence[Parity]) -> list[dict[str, Any]]:
    return [*(case.plain() for case in cases), *(trees.script(name) for name in TREES)]


def check(found: dict[str, Any], cases: Sequence[Parity]) -> None:
    """Digests against the constants, trees against the committed ones."""
    constants = parity.constants()
    assert {case.name: found[case.name] for case in cases} == {case.name: constants[case.name] for case in cases}
    for name in TREES:
        expected = json.loads(trees.path(name).read_text("utf-8"))
        assert set(found[name]) == set(expected)
        for key, values in expected.items():
            plain = trees.from_plain(values, np.zeros(0, np.float32))
            np.testing.assert_array_equal(np.array(found[name][key], np.float32).reshape(plain.shape), plain, err_msg=f"{name}: {key}")


@pytest.mark.parametrize("case", FAST, ids=lambda case: case.name)
def test_the_extension_computes_the_constant(case: Parity) -> None:
    assert case.native() == parity.constants()[case.name]


def test_the_module_computes_the_same_in_node() -> None:
    check(in_node(SCRIPT, scripts(FAST)), FAST)


def test_the_module_computes_the_same_in_a_browser() -> None:
    check(in_browser(SCRIPT, "(core, script, given) => script.compute(core, given)", scripts(FAST)), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=lambda case: case.name)
def test_a_thousand_games_are_the_same(case: Parity) -> None:
    expected = parity.constants()[case.name]
    assert case.native() == expected
    assert in_node(SCRIPT, [case.plain()]) == {case.name: expected}
