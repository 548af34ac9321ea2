"""The notebook of the documentation, cell by cell."""

from __future__ import annotations

import os
import re
import sys
from itertools import islice
from pathlib import Path

import pytest
from notebooks import run_cells

NOTEBOOK = Path(__file__).parents[2] / "docs" / "games" / "your-own.ipynb"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`azq` is that of this interpreter, and no port is anybody else's."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AZQ_DAEMON__PORT", "0")


def test_its_game_fulfils_every_rule(tmp_path: Path) -> None:
    _, checked = islice(run_cells(NOTEBOOK, tmp_path, 100.0), 2)
    assert "No problems found" in checked


@pytest.mark.slow
def test_its_game_is_learnt_as_it_says(tmp_path: Path) -> None:
    *_, trained, match, why, thought = run_cells(NOTEBOOK, tmp_path, 500.0)
    assert "domineering finished" in trained
    assert int(re.findall(r"(\d+) won", match)[0]) > 28  # of 40 against random moves
    assert "checked" in why
    assert float(re.findall(r"value ([+-]\d.\d+)", thought)[0]) > 0.5  # who begins wins
