"""The ledger of the control plane: what was opened, who works on it, what became of it."""

from __future__ import annotations

from azq.ledger.games import LedgerGames
from azq.ledger.jobs import LedgerJobs
from azq.ledger.learner import LedgerLearner
from azq.ledger.runs import LedgerRuns


class Ledger(LedgerRuns, LedgerJobs, LedgerGames, LedgerLearner):
    """Jobs, leases, runs and open games.

    Each method that changes something is one Lua script: atomic, fenced, on the server's clock. None repeats itself; every method may
    raise `BrokerUnavailable` or `BrokerRefused`, and after `BrokerUnavailable` a change may have been made all the same.
    `journal`, `renew`, `abandon`, `release`, `complete`, `renew_learner` and `record_inserted` are safe to repeat. Safe to share between
    threads.
    """
