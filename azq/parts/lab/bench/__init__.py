"""`azq bench`: what this machine reaches, per CPU-second of all processes together."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from azq.config import Config

MODULES = {"peers": "selfplay"}  # of benchmarks that have none of their own


def measure(name: str, config: Config, **options: Any) -> dict[str, Any]:
    """The figures of one benchmark: `bench_NAME` in the module of that name or the one it shares, loaded only now."""
    module = importlib.import_module(f"azq.parts.lab.bench.{MODULES.get(name, name)}")
    figures: dict[str, Any] = getattr(module, f"bench_{name}")(config, **options)
    return figures


def as_text(name: str, result: dict[str, Any]) -> str:
    """The figures of one benchmark, one a line."""
    lines = [f"azq bench {name}"]
    for key, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"  {'  '.join(cells)}" for cells in _columns(value)]
            continue
        shown = f"{value:,.{4 if abs(value) < 1000 else 0}{'g' if abs(value) < 1000 else 'f'}}" if isinstance(value, float) else value
        lines.append(f"  {key:<28} {shown}")
    return "\n".join(lines)


def _columns(rows: list[dict[str, Any]]) -> Iterator[list[str]]:
    """A line of names, then one a row, each cell as wide as its name."""
    yield list(rows[0])
    yield from ([f"{value!s:>{len(name)}}" for name, value in row.items()] for row in rows)
