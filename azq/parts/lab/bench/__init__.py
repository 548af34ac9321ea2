"""`azq bench`: what this machine reaches, per CPU-second of all processes together."""

from __future__ import annotations

import importlib
from typing import Any

from azq.config import Config
from azq.console.table import tabled


def measure(name: str, config: Config, **options: Any) -> dict[str, Any]:
    """The figures of one benchmark: `bench_NAME` in the module of that name, that of the search beside self-play's; loaded only now."""
    module = importlib.import_module(f"azq.parts.lab.bench.{name.replace('search', 'selfplay')}")
    figures: dict[str, Any] = getattr(module, f"bench_{name}")(config, **options)
    return figures


def as_text(name: str, result: dict[str, Any]) -> str:
    """The figures of one benchmark, a line each; rows of figures as a table."""
    tables = {key: value for key, value in result.items() if isinstance(value, list) and value and isinstance(value[0], dict)}
    lines = [f"azq bench {name}", *tabled([(key, _shown(value)) for key, value in result.items() if key not in tables], "figure", "value")]
    for rows in tables.values():
        lines += tabled([row.values() for row in rows], *(f"#{column}" for column in rows[0]))
    return "\n".join(lines)


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
