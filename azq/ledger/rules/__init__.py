"""The ledger's rules as pure functions: what the scripts in `azq/ledger/lua` do on the server, said in Python.

A rule takes the state of one run, the time in ms and its arguments, and returns the new state, with an answer where there is one.
Rules raise `LeaseLost`, `StateConflict` and `NotFound`; the state is a value, so a rule that raises has changed nothing.
Invariant: every open game is either in the pool or held by exactly one leased job.
"""

from azq.ledger.rules.games import abandon, adopt, complete, finish_games, journal, release
from azq.ledger.rules.jobs import cancel, claim, enqueue, expire, fail, mark_published, recent, renew, requeue
from azq.ledger.rules.learner import check_learner, end_learner, record_inserted, renew_learner, restore, take_learner
from azq.ledger.rules.runs import TRANSITIONS, check_deletable, check_run_name, events, max_waiting, run_view, set_run_state, still_at_work
from azq.ledger.rules.state import KEPT_ENDED_JOBS, KEPT_EVENTS, JobRow, LearnerRow, State, lease_ms, number_of

__all__ = [
    "KEPT_ENDED_JOBS",
    "KEPT_EVENTS",
    "TRANSITIONS",
    "JobRow",
    "LearnerRow",
    "State",
    "abandon",
    "adopt",
    "cancel",
    "check_deletable",
    "check_learner",
    "check_run_name",
    "claim",
    "complete",
    "end_learner",
    "enqueue",
    "events",
    "expire",
    "fail",
    "finish_games",
    "journal",
    "lease_ms",
    "mark_published",
    "max_waiting",
    "number_of",
    "recent",
    "record_inserted",
    "release",
    "renew",
    "renew_learner",
    "requeue",
    "restore",
    "run_view",
    "set_run_state",
    "still_at_work",
    "take_learner",
]
