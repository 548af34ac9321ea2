"""Versions on trial, whose judge and memory are hurt."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence

from azq.arena.whole import WholeMatch
from azq.bus.promotions import candidate, state_of
from azq.bus.redis import RedisBus
from azq.drill.scenarios import Harm, Scenario, fault
from azq.drill.system import READY_S, RUN, System
from azq.errors import StateConflict
from azq.status.observe import read_promotions, read_results
from azq.wire.messages import PromotionEvent


@fault("kill-in-trial", "broker-control")
def kill_in_trial(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL once a part of a candidate's trial was played; well again when it was judged, by a whole trial, and served or not."""
    before = system.working(scenario.role)
    tried = system.until(lambda: _under_trial(system), "a candidate whose trial has begun", READY_S)
    system.kin.send(signal.SIGKILL, before)

    def healed() -> bool:
        events = _events(system)
        if not system.replaced(scenario.role, before) or state_of(events, tried) in ("", "candidate"):
            return False
        deeds = [event.deed for event in events if event.version == tried]
        if deeds not in (["candidate", "promoted"], ["candidate", "rejected"]):
            raise StateConflict(f"version {tried} was to be tried and judged once, and became {', '.join(deeds)}")
        return True

    return Harm(healed)


def _events(system: System) -> Sequence[PromotionEvent]:
    return system.query(lambda client: read_promotions(RedisBus(client), RUN).events) or ()


def _trial_of(system: System, version: int) -> WholeMatch | None:
    results = system.query(lambda client: read_results(RedisBus(client), RUN))
    matches = results[0] if results else ()
    return next((match for match in matches if match.spec.trial and match.spec.first == f"weights:{version}"), None)


def _under_trial(system: System) -> int | None:
    """A candidate of whose trial some was played, and some was not."""
    tried = candidate(_events(system))
    trial = _trial_of(system, tried) if tried else None
    return tried if trial and 0 < trial.games < trial.spec.games else None
