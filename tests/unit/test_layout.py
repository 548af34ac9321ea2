"""The plan of the house is told in three places, and they agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import azq

ROOT = Path(__file__).parents[2]


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return list(contracts[0]["layers"])


def test_the_package_lists_its_layers_from_the_lowest_up() -> None:
    listed = [line.strip().split("  ")[0] for line in (azq.__doc__ or "").splitlines() if line.startswith("    ")]
    assert listed == layers()[::-1]


def test_the_architecture_page_draws_the_same_layers() -> None:
    assert "```\n" + "\n".join(layers()) + "\n```" in (ROOT / "docs" / "1-architecture.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("module", "strangers"),
    [
        ("daemon.decide.reconcile", {"redis", "celery", "kombu", "torch", "fastapi"}),
        ("azq.ledger.rules", {"redis", "celery", "torch"}),
        ("azq.actor", {"torch"}),
        ("daemon.serve.core", {"torch"}),
    ],
)
def test_a_room_loads_nothing_that_it_must_do_without(module: str, strangers: set[str]) -> None:
    found = subprocess.run([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert strangers & set(found.stdout.split()) == set()
