"""azq/_core.pyi names exactly what the extension has."""

from __future__ import annotations

import ast
from pathlib import Path

from azq import _core

STUB = Path(__file__).parents[3] / "azq" / "_core.pyi"


def members(node: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.ClassDef):
            found[item.name] = item
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found[item.target.id] = item
    return found


def public(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_stub_and_the_extension_have_the_same_names() -> None:
    stub = members(ast.parse(STUB.read_text("utf-8")))
    assert set(stub) == public(_core)
    for name, node in stub.items():
        if isinstance(node, ast.ClassDef):
            assert {member for member in members(node) if not member.startswith("_")} == public(getattr(_core, name)), name
