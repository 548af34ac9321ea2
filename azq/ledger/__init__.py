"""Jobs, leases, runs and open games, kept so that every finished game counts exactly once.

The ledger is loaded when it is asked for: decisions need their nouns (`azq.ledger.types`) and no client of a broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azq.ledger.ledger import Ledger

__all__ = ["Ledger"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("azq.ledger.ledger"), name)
