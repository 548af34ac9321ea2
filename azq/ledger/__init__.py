"""Jobs, leases, runs and open games, kept so that every finished game counts exactly once.

The ledgers are loaded when they are asked for: decisions need their nouns (`azq.ledger.types`) and no client of a broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from azq.ledger.ledger import Ledger
    from azq.ledger.memory import MemoryLedger

__all__ = ["Ledger", "MemoryLedger"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("azq.ledger.ledger" if name == "Ledger" else "azq.ledger.memory"), name)
