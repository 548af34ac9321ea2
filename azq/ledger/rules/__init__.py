"""The ledger's rules as pure functions: what the scripts in `azq/ledger/lua` do on the server, said in Python.

A rule takes the state of one run, the time in ms and its arguments, and returns the new state, with an answer where there is one.
Rules raise `LeaseLost`, `StateConflict` and `NotFound`; the state is a value, so a rule that raises has changed nothing.
Invariant: every open game is either in the pool or held by exactly one leased job.
"""

from azq.ledger.rules import games, jobs, learner, runs, state

__all__ = ["games", "jobs", "learner", "runs", "state"]
