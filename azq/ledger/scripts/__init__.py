"""The ledger's rules on the server: one Lua script each, so that every change is atomic. `azq.ledger.rules` says the same in Python.

All scripts take the same keys and begin with the same arguments; `azq.wire.keys` gives the keys' types.

    KEYS[1] prefix of the run's keys, itself no key   KEYS[2] answer kept under an idempotency key (where one was sent)
    ARGV[1] now in ms, or '' for the server's clock
    ARGV[2] number of the job, '' where the script is not about one
    ARGV[3] attempt           ARGV[4] owner           ARGV[5] length of the lease in ms         (scripts of a lease)

All keys of one run share a slot, so a script may make their names from the prefix. A server with users asks for the right to read
and write what a script declares, whatever it does with it; undeclared keys are judged by each command, so that a role that may only
read the run can still call the scripts that do. Answers begin with a word: `ok`, `lost` (the lease was taken over), `missing` (no
such run or job), `conflict` and the state that forbids it, `held` and `superseded` and by which learner.
"""

from azq.ledger.scripts import games, jobs, learner, runs
from azq.ledger.scripts.common import source

__all__ = ["games", "jobs", "learner", "runs", "source"]
