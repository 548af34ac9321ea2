"""azq trains AlphaZero-style agents over a message queue, and keeps training when parts of it die.

The packages, in dependency order (a package imports only from those above it; lines of one group do not import each other):

    azq.errors      every error, and the exit code it ends a process with
    azq.config      settings that humans write          azq.logs, azq.metrics, azq.usage, azq.sdnotify
    azq.games       the rules of games, from azq._core (C++20: azq/core)
    azq.presets     settings that learn each game
    azq.wire        every message and every Redis key
    azq.bus         streams, replies, heartbeats        azq.ledger  jobs, leases, open games
    azq.queue       Celery, routed by hardware tag      azq.store   blobs: weights
    azq.search      evaluators' contract, batched trees azq.nets    networks    azq.replay  segment log, window, limiter
    azq.actor       makes games                         azq.inference  evaluates leaves
    azq.learner     trains                              azq.arena      compares
    workers, daemon thin mains: Celery tasks, inference and learner processes; the operations daemon and its REST interface
    azq.client      the REST interface from Python
    azq.console     `azq up`, the live table, `azq play`, `azq bench`
    azq.cli         the composition root
"""

__version__ = "0.1.0"
