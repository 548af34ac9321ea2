"""Each promise in docs/guarantees.md names checks that exist, and each drill and test that it names is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8").partition("## Not a good fit for")[0]
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| azq promises that")]


def missing(proof: str) -> list[str]:
    """What a row's second column names that is neither a drill nor a test."""
    gone, file = [], ""
    for name in re.findall(r"`([^`]+)`", proof):
        path, _, function = name.rpartition("::")
        file = path or file
        there: object
        if function.startswith("test_"):
            there = (ROOT / file).is_file() and re.search(
                rf"^ *(?:async )?def {function}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
            )
        else:
            there = (ROOT / "ops" / "drills" / f"{name}.toml").is_file()
        gone += [] if there else [name]
    return gone


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_promise_names_checks_that_exist(row: list[str]) -> None:
    promise, proof = row
    assert "`" in proof, promise
    assert missing(proof) == []


def test_a_check_that_does_not_exist_is_noticed() -> None:
    assert missing("drill `no-such-drill`; `tests/unit/test_guarantees.py::test_no_such`, `test_neither`") == [
        "no-such-drill",
        "tests/unit/test_guarantees.py::test_no_such",
        "test_neither",
    ]


def test_every_sentence_above_the_bad_fits_is_a_promise_with_a_check_or_the_head() -> None:
    prose = [line for line in PAGE.splitlines() if line and not line.startswith(("|", "#"))]
    assert len(prose) == 1
    assert prose[0].startswith("Audience: ")
