"""What an hour of a machine costs: the catalogue of kinds that azq knows, with the day of each price. Pure but for reading its file."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(1)
def catalogue() -> dict[str, Any]:
    """The kinds of machines that azq knows, and the currency of their prices."""
    return tomllib.loads((files("azq") / "prices.toml").read_text("utf-8"))


def price_of(kind: str) -> float | None:
    """An hour of a machine of this kind; None where it is unknown: no price is ever guessed."""
    price: float | None = catalogue()["kinds"].get(kind, {}).get("per_hour")
    return price
