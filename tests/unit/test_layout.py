"""The plan of the house is told in three places, and they agree."""

from __future__ import annotations

import ast
import re
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
        ("azq.ledger.types", {"redis", "celery", "torch"}),
        ("azq.actor", {"torch"}),
        ("azq.console.up", {"torch"}),
        ("daemon.serve.loop", {"torch"}),
    ],
)
def test_a_room_loads_nothing_that_it_must_do_without(module: str, strangers: set[str]) -> None:
    found = subprocess.run([sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"], capture_output=True, text=True, check=True)
    assert strangers & set(found.stdout.split()) == set()


def sources() -> list[Path]:
    return sorted(file for package in ("azq", "daemon", "workers") for file in (ROOT / package).rglob("*.py"))


def test_no_python_program_is_started_so_that_it_imports_from_the_folder_it_is_started_in() -> None:
    """`-I` implies `-P`; a `Path` of the interpreter starts nothing."""
    open_to_it = re.compile(r'(?<!Path\()sys\.executable(?!, "-[PI]")')
    assert [str(file) for file in sources() if open_to_it.search(file.read_text("utf-8"))] == [], "use azq.process.start.PYTHON"


def test_no_two_classes_share_a_name() -> None:
    found: dict[str, list[str]] = {}
    for file in sources():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_no_module_is_longer_than_four_hundred_lines() -> None:
    assert [str(file) for file in sources() if file.read_text("utf-8").count("\n") >= 400] == []


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {azq.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def marked(marker: str) -> set[str]:
    """Test files in which something has a marker."""
    files = (ROOT / "tests").rglob("test_*.py")
    return {str(file.relative_to(ROOT)) for file in files if f"pytest.mark.{marker}" in file.read_text("utf-8")} - {
        "tests/unit/test_layout.py"
    }


def test_every_slow_test_is_run_by_continuous_integration_and_every_file_that_it_names_has_some() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    named = set(re.findall(r"tests/[\w/]+(?:\.py)?", script))
    slow = marked("slow") - marked("gpu")
    assert {file for file in slow if not any(file == name or file.startswith(f"{name}/") for name in named)} == set()
    assert {name for name in named if not any(file.startswith(name) for file in slow | marked("drill"))} == set()
