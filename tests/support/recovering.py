"""A whole azq that is to train, and to recover from the death of any of its processes."""

from __future__ import annotations

from functools import partial

from waiting import PATIENCE_S

import azq
from azq.process.kin import Victim

SMALL = ("search.num_simulations=4", "selfplay.games_in_flight=16", "learner.min_window=64", "learner.batch_size=64", "arena.every_s=0")


def trains(run: azq.Local, games: int) -> None:
    """So many more games were learned from."""
    before = run.until(run.counts, "an answer", PATIENCE_S).inserted
    run.until(partial(_learned_more, run, before + games), "games that were learned from", PATIENCE_S)


def recovers(run: azq.Local, role: str) -> None:
    """The process of a role is killed; another takes its place, and games go on."""
    victim = run.kin.processes()[role]
    run.kill(role)
    run.until(partial(_is_another, run, victim), f"another {role}", PATIENCE_S)
    trains(run, 100)


def balances(run: azq.Local) -> None:
    """The ledger proves that no game was lost."""
    run.until(partial(_balanced, run), "a ledger that balances", PATIENCE_S)


def _learned_more(run: azq.Local, games: int) -> bool:
    counts = run.counts()
    return counts is not None and counts.inserted > games


def _balanced(run: azq.Local) -> bool:
    counts = run.counts()
    return counts is not None and counts.balanced


def _is_another(run: azq.Local, victim: Victim) -> bool:
    now = run.kin.processes().get(victim.role)
    return now is not None and now != victim
