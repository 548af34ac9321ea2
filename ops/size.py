"""Lines of Python, words of documentation, the import closure of the services and words to avoid, each beside its budget in pyproject.toml.

Usage: size.py [--words]    exits with 1 where a budget is passed. Budgets only fall: lower the number with the size. `--words`
lists where words to avoid stand.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["azq"]
AVOIDED = SETTINGS["words"]
PRODUCT = ("azq", "daemon", "workers")
SERVICES = ("daemon.main", "workers.selfplay", "workers.evaluate", "workers.inference", "workers.learner")


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def words(path: Path) -> int:
    return len(path.read_text("utf-8").split())


def tracked(*patterns: str) -> list[Path]:
    return [ROOT / name for name in subprocess.check_output(["git", "ls-files", "-z", *patterns], cwd=ROOT, text=True).split("\0") if name]


def total(count: Callable[[Path], int], paths: Iterable[Path]) -> int:
    return sum(map(count, paths))


def closure() -> list[Path]:
    """Files that the services import, directly or not, imports inside functions included."""
    graph = grimp.build_graph(*PRODUCT)
    modules = {found for service in SERVICES for found in (service, *graph.find_upstream_modules(service))}
    candidates = (ROOT.joinpath(*module.split(".")) for module in modules)
    return [file for path in candidates for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]


def vague_names(path: Path) -> Iterator[str]:
    """`file:line: name` of every definition or assignment whose name is one of those to avoid."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        name = getattr(node, "name", None) or getattr(node, "arg", None)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if isinstance(name, str) and name.strip("_") in AVOIDED["names"]:
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"


def odd_words(path: Path) -> Iterator[str]:
    """`file:line: word` of every word to avoid in code, comments, messages and documentation."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for match in re.finditer(rf"\b(?:{'|'.join(AVOIDED['text'])})\b", line, re.IGNORECASE):
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]}"


def avoided() -> dict[str, list[str]]:
    product = tracked(*(f"{name}/*.py" for name in PRODUCT))
    prose = [*product, *tracked("README.md", "docs/*.md", "azq/*.lua", "azq/*.js", "azq/*.html", "daemon/*.js", "daemon/*.html")]
    return {
        "names to avoid": [place for path in product for place in vague_names(path)],
        "words to avoid": [place for path in prose for place in odd_words(path)],
    }


def measured() -> dict[str, int]:
    product, services = tracked(*(f"{name}/*.py" for name in PRODUCT)), closure()
    return {
        "product lines": total(lines, product),
        "product files": len(product),
        "services lines": total(lines, services),
        "services files": len(services),
        "tests lines": total(lines, tracked("tests/*.py")),
        "ops lines": total(lines, tracked("ops/*.py", "ops/*.sh")),
        "docs words": total(words, tracked("README.md", "docs/*.md")),
        "core lines": total(lines, tracked("azq/*.cpp", "azq/*.hpp")),
        **{what: len(places) for what, places in avoided().items()},
    }


def main() -> None:
    if "--words" in sys.argv[1:]:
        print(*(place for places in avoided().values() for place in places), sep="\n")
    budgets = SETTINGS["size"]
    sizes = measured()
    for what, size in sizes.items():
        print(f"{size:7,} of {budgets[what]:7,} {what}")
    if over := [what for what, size in sizes.items() if size > budgets[what]]:
        raise SystemExit(f"larger than [tool.azq.size] of pyproject.toml allows: {', '.join(over)}; make it smaller")


if __name__ == "__main__":
    main()
