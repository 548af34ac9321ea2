"""What may go wrong in a simulation, and a seed's plan of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from azq.errors import ConfigError
from azq.parts.sim.actors import RUN
from azq.parts.sim.broker import FULL, READ_ONLY, Refusal
from azq.parts.sim.streams import Stream
from azq.parts.sim.world import SECOND, Actor
from azq.wire import keys

if TYPE_CHECKING:
    from azq.parts.sim.network import SimulatedNetwork
    from azq.parts.sim.simulation import SeedRun

LONGEST_FREEZE_S = 40.0  # longer than any lease
LONGEST_JUMP_S = 30.0
LONGEST_OUTAGE_S = 12.0
LONGEST_FULL_S = 10.0
LONGEST_DELAY_S = 50.0
FILE_LAG_S = 2.0  # of the append-only file behind the broker: what a crash may lose
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


def _cut(_: SeedRun, actor: Actor, __: float, when: str) -> None:
    actor.cut = when


def _freeze(sim: SeedRun, actors: Sequence[Actor], amount: float) -> None:
    """As SIGSTOP, a full machine or a pause of the virtual one does."""
    for actor in actors:
        actor.frozen_until_ns = sim.world.now_ns + round(LONGEST_FREEZE_S * amount**2 * SECOND)


def _jump(clock: Actor | SimulatedNetwork, amount: float) -> None:
    clock.skew_ns += round((2 * amount - 1) * LONGEST_JUMP_S * SECOND)


def _lose_broker(sim: SeedRun, _: Actor, amount: float, lag_s: float = 0.0) -> None:
    """It comes back later; where its file lags, commands and messages are lost."""
    sim.network.lose(amount if lag_s else 0.0, lag_s, LONGEST_OUTAGE_S * amount**2)
    if lag_s:
        sim.delivery.lose()


def _fill_disk(sim: SeedRun, _: Actor, amount: float) -> None:
    sim.site.fill_disks(True)
    sim.world.at(sim.world.monotonic() + LONGEST_FULL_S * amount, partial(sim.site.fill_disks, False))


def _refuse_writes(sim: SeedRun, _: Actor, amount: float, why: Refusal) -> None:
    """Without memory it is as long as games wait for the learner, too, unless that was stopped."""
    broker = sim.network.broker

    def take_again() -> None:
        if why is FULL and not sim.site.deletes and broker.keys.get(keys.samples(RUN).encode(), Stream).ids:
            sim.world.at(sim.world.monotonic() + 1.0, take_again)
        else:
            broker.refusal = None

    broker.refusal = why
    sim.world.at(sim.world.monotonic() + LONGEST_FULL_S * amount, take_again)


def _send_away(sim: SeedRun, actor: Actor, amount: float) -> None:
    """A machine, by its number: all its processes but a daemon. It is let in again later."""
    names = {f"{kind}-{actor.name[-1]}" for kind in ("worker", "pool", "learner", "inference")}
    sim.network.sent_away.update(names)
    sim.world.at(sim.world.monotonic() + LONGEST_FREEZE_S * amount, lambda: sim.network.sent_away.difference_update(names))


def _delete_run(sim: SeedRun, _: Actor, amount: float) -> None:
    """Its learners' hosts do not answer meanwhile, and are back when a run of its name is there again, or before."""
    _freeze(sim, [actor for actor in sim.world.actors if actor.name.startswith("learner")], amount)
    sim.site.deletes = True


def _end_learners(sim: SeedRun, *then: Callable[[], None]) -> None:
    """What is done to their disk comes after their end: they read their log when they start."""
    for actor in sim.world.actors:
        if actor.name.startswith("learner"):
            sim.world.kill(actor)
    for do in then:
        sim.world.at(sim.world.monotonic(), do)


#: by name, with how often in a plan
KINDS: dict[str, tuple[Callable[[SeedRun, Actor, float], None], float]] = {
    "kill": (lambda sim, actor, _: sim.world.kill(actor), 6),
    "cut_before": (partial(_cut, when="before"), 4),
    "cut_after": (partial(_cut, when="after"), 8),
    "freeze": (lambda sim, actor, amount: _freeze(sim, [actor], amount), 4),
    "freeze_all": (lambda sim, _, amount: _freeze(sim, sim.world.actors, amount), 1),
    "clock_jump": (lambda _, actor, amount: _jump(actor, amount), 1),
    "broker_clock_jump": (lambda sim, _, amount: _jump(sim.network, amount), 1),
    "broker_restart": (_lose_broker, 1),
    "broker_rollback": (partial(_lose_broker, lag_s=FILE_LAG_S), 1),
    "broker_restored": (partial(_lose_broker, lag_s=AGE_OF_COPY_S), 1),
    "broker_full": (partial(_refuse_writes, why=FULL), 1),
    "broker_read_only": (partial(_refuse_writes, why=READ_ONLY), 1),
    "run_deleted": (_delete_run, 0.2),
    "machine_sent_away": (_send_away, 1),
    "message_lost": (lambda sim, _, __: sim.delivery.trouble.append(()), 2),
    "message_doubled": (lambda sim, _, __: sim.delivery.trouble.append((0.0, 0.0)), 3),
    "message_delayed": (lambda sim, _, amount: sim.delivery.trouble.append((LONGEST_DELAY_S * amount,)), 2),
    "disk_full": (_fill_disk, 1),
    "power_cut": (lambda sim, _, __: _end_learners(sim, *(disk.power_cut for disk in sim.site.disks)), 2),
    "damage": (lambda sim, _, amount: _end_learners(sim, lambda: sim.site.disks[-1].damage(amount)), 1),
}
FORGETS = ("broker_rollback", "broker_restored")  # never in a plan in which a run is deleted: it would be there again, without its folder


def plan(seed: int, rate: float, seconds: float) -> list[Fault]:
    """The faults of a seed, `rate` a simulated second. In every second seed the broker never forgets, which is judged more strictly."""
    rng = random.Random(f"faults {seed}")
    names = [name for name in KINDS if (name != "run_deleted" if seed % 2 else name not in FORGETS)]
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
