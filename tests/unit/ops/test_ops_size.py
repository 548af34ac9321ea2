"""Budgets of lines and words: one that is passed is named."""

from __future__ import annotations

import sys

import pytest
import size


def test_a_budget_that_is_passed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(size, "measured", lambda: {"product lines": 10**9, "product files": 1})
    monkeypatch.setattr(sys, "argv", ["size.py"])
    with pytest.raises(SystemExit, match=r"larger than \[tool.azq.size\] of pyproject.toml allows: product lines; make it smaller"):
        size.main()
    assert "1,000,000,000 of" in capsys.readouterr().out
