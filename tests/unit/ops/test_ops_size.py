"""Budgets of lines and words: each is held, named where it is passed, and nothing is counted twice."""

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


def test_services_are_a_part_of_the_product_and_rooms_are_all_of_it() -> None:
    sizes, product = size.measured(), {path for name in size.PRODUCT for path in size.tracked(f"{name}/*.py")}
    services = size.closure()
    assert set(services) <= product
    assert len(services) == len(set(services)) == sizes["services files"]
    assert sum(size.rooms().values()) == sizes["product lines"]
