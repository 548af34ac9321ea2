"""Jobs, leases, runs and open games, kept so that every finished game counts exactly once."""

from azq.ledger.ledger import Ledger

__all__ = ["Ledger"]
