"""The drill "network cut": machines that joined a fleet are cut off one after another, and healed."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from azq.drill.fleet import Fleet, fleet
from azq.drill.hosts import Lan
from azq.drill.outcome import Outcome
from azq.drill.proof import compare
from azq.errors import EvaluationTimeout

EVALUATOR, PLAYERS = "eyes", ("cora", "dora")


def rehearse_cut(outcome: Outcome, rounds: int, rng: random.Random, tell: Callable[[str], None]) -> None:
    """So many cuts on one fleet; seconds are from the heal until the machine works and games are learned from again."""
    with tempfile.TemporaryDirectory(prefix="azq-hosts-") as folder, fleet(Path(folder), EVALUATOR, *PLAYERS) as (found, lan):
        try:
            found.join(EVALUATOR, "--roles", "inference")
            for player in PLAYERS:
                found.join(player, "--roles", "selfplay", "-c", "1")
            found.until(lambda: all(found.leased(player) for player in PLAYERS), "jobs at every player", 90.0)
            for number in range(rounds):
                _round(outcome, found, lan, (EVALUATOR, *PLAYERS)[number % 3] if rounds > 1 else rng.choice(PLAYERS), tell)
            outcome.evaluations_resent = found.resent()
            found.drain(*PLAYERS)
            outcome.balanced &= found.counts().balanced
            outcome.note(compare(found.books(), found.disk()))
        except EvaluationTimeout as error:
            outcome.failed = str(error)
            tell(f"{outcome.scenario.name}: FAILED: {error}")


def _round(outcome: Outcome, found: Fleet, lan: Lan, host: str, tell: Callable[[str], None]) -> None:
    """One cut, long enough that the fleet gives the machine up."""
    found.more(1, f"before {host} is cut off")
    found.until(lambda: _works(found, host), f"{host} at work")
    lan.hosts[host].cut()
    found.until(lambda: not found.beats(host) and not found.leased(host), f"the end of {host}'s heartbeat and leases")
    lan.hosts[host].heal()
    began = time.monotonic()
    found.until(lambda: _works(found, host), f"{host} at work again", 90.0)
    counts = found.more(1, f"after {host} came back", 90.0)
    outcome.recovery_s.append(time.monotonic() - began)
    outcome.balanced &= counts.balanced
    tell(f"{outcome.scenario.name}: {host} back after {outcome.recovery_s[-1]:.2f} s, {counts.inserted} games learned from")


def _works(found: Fleet, host: str) -> bool:
    return bool(found.beats(host)) and (host == EVALUATOR or bool(found.leased(host)))
