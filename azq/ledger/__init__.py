"""Jobs, leases, runs and open games, kept so that every finished game counts exactly once."""

from typing import TypeAlias

from azq.ledger.ledger import Ledger
from azq.ledger.memory import MemoryLedger

AnyLedger: TypeAlias = Ledger | MemoryLedger  # one suite holds that the double answers alike

__all__ = ["AnyLedger", "Ledger", "MemoryLedger"]
