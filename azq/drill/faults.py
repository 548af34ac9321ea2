"""The harm that is done, by the name of the fault."""

from __future__ import annotations

import random
from collections.abc import Callable

from azq.drill import clocks, guests, killers, learners, losses, machines, messages, moments, resources, signals
from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import System

DEEDS: dict[str, Callable[[System, Scenario, random.Random], Harm]] = {
    "kill": signals.kill,
    "kill-used": signals.kill_used,
    "kill-child": signals.kill_child,
    "kill-unacknowledged": moments.kill_unacknowledged,
    "kill-in-checkpoint": moments.kill_in_checkpoint,
    "stop": signals.stop,
    "stop-child": signals.stop_child,
    "sleep-child": signals.sleep_child,
    "slow": signals.slow,
    "restart": signals.restart,
    "out-of-memory": resources.out_of_memory,
    "disk-full": resources.disk_full,
    "clock-jump": clocks.jump,
    "poison": messages.poison,
    "oversized": messages.oversized,
    "wrong-hash": messages.forge_weights,
    "nan": messages.forge_weights,
    "truncated": messages.forge_weights,
    "second": learners.second_learner,
    "second-elsewhere": learners.second_learner,
    "lost": losses.lose_control_plane,
    "out-of-memory-for-good": losses.fill_control_plane,
    "bad-run": guests.bad_run,
    "deadly-game": guests.deadly_game,
    "deadly-request": killers.deadly_request,
    "revoke": machines.revoke,
}


def harm(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Does it once."""
    return DEEDS[scenario.fault](system, scenario, rng)
