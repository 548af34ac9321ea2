"""azq trains AlphaZero-style agents over a message queue, and keeps training when parts of it die.

The packages, in dependency order (a package imports only from those above it; those of one line do not import each other):

    azq.errors                                            every error, and the exit code it ends a process with
    azq.clock | azq.files | azq.findings | azq.goals | azq.masking | azq.metrics | azq.phases | azq.prices | azq.stats | azq.waiting  tools
    azq.config | azq.logs | azq.tracing                   settings that humans write; log lines; a game's way through all processes
    azq.games | azq.presets | azq.pretrained              the rules of games, from azq._core (C++20: azq/core); settings; trained weights
    azq.wire                                              every message and every Redis key
    azq.process                                           what it means to be a process of azq: signals, liveness, children
    azq.queue | azq.ledger | azq.bus | azq.store          Celery by hardware tag; jobs, leases, games; streams; blobs
    azq.search | azq.nets | azq.replay | azq.notation | azq.ratings  batched trees; networks; the segment log; game files; strength
    azq.actor | azq.inference | azq.learner | azq.arena | azq.samples    makes games; evaluates leaves; trains; compares; looks at games
    azq.status                                            what is known of runs, queues and workers, for pages, REST and commands
    workers | daemon                                      Celery tasks and long-running mains; decides and serves REST
    azq.client                                            the REST interface from Python
    azq.host                                              one machine: brokers, run folders, devices, systemd, joining a fleet
    azq.local                                             a whole azq in one process and one folder: `azq.Local`
    azq.console                                           what a person looks at: `azq up`, the live table, play, doctor
    azq.cli                                               the command line, which finds the parts by `azq.parts.extensions`
    azq.parts.cluster | azq.parts.volunteers | azq.parts.ranks | azq.parts.sim    machines; tabs; several learners; faults from a seed
    azq.parts.lab.bench | azq.parts.lab.drill             what this machine reaches; failures rehearsed
    azq.parts.lab.validate | azq.parts.lab.sweep | azq.parts.lab.calibrate | azq.parts.lab.speedrun    proofs; settings; rates; records
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`azq.Local`, loaded when it is used: it reaches most of the packages above."""
    if name == "Local":
        return import_module("azq.local").Local
    raise AttributeError(f"module 'azq' has no attribute {name!r}")
