"""Jobs, leases, runs and open games, kept so that every finished game counts exactly once."""

from azq.ledger.ledger import Ledger
from azq.ledger.memory import MemoryLedger

__all__ = ["Ledger", "MemoryLedger"]
