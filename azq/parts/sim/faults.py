"""What may go wrong in a simulation, and a seed's plan of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from azq.errors import ConfigError
from azq.parts.sim import network
from azq.parts.sim.world import SECOND, Actor

if TYPE_CHECKING:
    from azq.parts.sim.simulation import SeedRun

LONGEST_FREEZE_S = 40.0  # longer than any lease
LONGEST_JUMP_S = 30.0
LONGEST_OUTAGE_S = 12.0
LONGEST_FULL_S = 10.0
LONGEST_DELAY_S = 50.0
AGE_OF_COPY_S = 40.0  # of the append-only file that an operator puts back


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong: `pick` chooses whom it meets, `amount` (0 to 1) how much or how long."""

    at_s: float
    kind: str
    pick: int
    amount: float

    def __str__(self) -> str:
        return f"{self.at_s:.3f}:{self.kind}:{self.pick}:{self.amount:.4f}"


def _kill(sim: SeedRun, actor: Actor, _: float) -> None:
    sim.world.kill(actor)


def _cut_before(_: SeedRun, actor: Actor, __: float) -> None:
    actor.cut = "before"


def _cut_after(_: SeedRun, actor: Actor, __: float) -> None:
    actor.cut = "after"


def _freeze(sim: SeedRun, actor: Actor, amount: float) -> None:
    sim.world.freeze([actor], LONGEST_FREEZE_S * amount**2)


def _freeze_all(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.world.freeze(sim.world.actors, LONGEST_FREEZE_S * amount**2)


def _jump(_: SeedRun, actor: Actor, amount: float) -> None:
    actor.skew_ns += round((2 * amount - 1) * LONGEST_JUMP_S * SECOND)


def _jump_of_broker(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.network.skew_ns += round((2 * amount - 1) * LONGEST_JUMP_S * SECOND)


def _restart_broker(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.network.lose(0.0, LONGEST_OUTAGE_S * amount**2)


def _roll_back_broker(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.network.lose(amount, LONGEST_OUTAGE_S * amount**2)
    sim.delivery.lose(lambda: sim.world.rng.random() < 0.5)


def _restore_broker(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.network.lose(amount, LONGEST_OUTAGE_S * amount**2, AGE_OF_COPY_S)
    sim.delivery.lose(lambda: sim.world.rng.random() < 0.5)


def _lose_message(sim: SeedRun, _: Actor, __: float) -> None:
    sim.delivery.trouble.append(network.lost)


def _double_message(sim: SeedRun, _: Actor, __: float) -> None:
    sim.delivery.trouble.append(network.doubled)


def _delay_message(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.delivery.trouble.append(network.delayed(LONGEST_DELAY_S * amount))


def _fill_disk(sim: SeedRun, _: Actor, amount: float) -> None:
    for disk in sim.disks:
        disk.full = True
    sim.world.at(sim.world.monotonic() + LONGEST_FULL_S * amount, sim.free_disk)


def _cut_power(sim: SeedRun, _: Actor, __: float) -> None:
    _end_learners(sim)
    for disk in sim.disks:
        sim.world.at(sim.world.monotonic(), disk.power_cut)


def _damage(sim: SeedRun, _: Actor, amount: float) -> None:
    _end_learners(sim)  # which read their log when they start
    sim.world.at(sim.world.monotonic(), lambda: sim.disks[0].damage(amount))


def _end_learners(sim: SeedRun) -> None:
    for actor in sim.world.actors:
        if actor.name.startswith("learner"):
            sim.world.kill(actor)


#: by name, with how often in a plan
KINDS: dict[str, tuple[Callable[[SeedRun, Actor, float], None], int]] = {
    "kill": (_kill, 6),
    "cut_before": (_cut_before, 4),
    "cut_after": (_cut_after, 8),
    "freeze": (_freeze, 4),
    "freeze_all": (_freeze_all, 1),
    "clock_jump": (_jump, 1),
    "broker_clock_jump": (_jump_of_broker, 1),
    "broker_restart": (_restart_broker, 1),
    "broker_rollback": (_roll_back_broker, 1),
    "broker_restored": (_restore_broker, 1),
    "message_lost": (_lose_message, 2),
    "message_doubled": (_double_message, 3),
    "message_delayed": (_delay_message, 2),
    "disk_full": (_fill_disk, 1),
    "power_cut": (_cut_power, 2),
    "damage": (_damage, 1),
}
FORGETS = ("broker_rollback", "broker_restored")


def plan(seed: int, rate: float, seconds: float) -> list[Fault]:
    """The faults of a seed, `rate` a simulated second. In every second seed the broker never forgets, which is judged more strictly."""
    rng = random.Random(f"faults {seed}")
    names = [name for name in KINDS if seed % 2 or name not in FORGETS]
    faults: list[Fault] = []
    at_s = rng.expovariate(rate) if rate else seconds
    while at_s < seconds:
        (kind,) = rng.choices(names, [KINDS[name][1] for name in names])
        faults.append(Fault(at_s, kind, rng.randrange(1 << 16), rng.random()))
        at_s += rng.expovariate(rate)
    return faults


def parse(words: Sequence[str]) -> list[Fault]:
    """Faults as they are printed. Raises `ConfigError`."""
    faults = []
    for word in words:
        try:
            at_s, kind, pick, amount = word.split(":")
            faults.append(Fault(float(at_s), kind, int(pick), float(amount)))
        except ValueError:
            raise ConfigError(f"{word!r} is no fault; write SECONDS:KIND:PICK:AMOUNT, as a failing seed prints them") from None
        if kind not in KINDS:
            raise ConfigError(f"no fault {kind!r}; there are: {', '.join(KINDS)}")
    return faults
