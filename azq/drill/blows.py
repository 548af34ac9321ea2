"""Which faults befall a system when, by the mean time between failures: a pure function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from azq.drill.scenarios import BROKERS, PROCESSES

CHILD = "selfplay-child"  # the process of a self-play worker's pool that plays
PLAYING = (*PROCESSES, CHILD)
#: kind -> roles that it can befall
KINDS: dict[str, tuple[str, ...]] = {
    "kill": (*PLAYING, *BROKERS),
    "segv": (*PLAYING, *BROKERS),
    "stop": (*PLAYING, *BROKERS),  # for longer than anybody waits
    "freeze": (*PLAYING, *BROKERS),  # shorter, or just long enough for a lease to run out
    "cut": BROKERS,  # all connections drop, and who connects again hears nothing for a while
    "memory": BROKERS,
    "disk-full": ("learner",),
    "poison": ("streams",),
    "nan": ("weights",),
    "truncated": ("weights",),
    "wrong-hash": ("weights",),
}
LASTS_S: dict[str, tuple[float, float]] = {
    "stop": (20.0, 20.0),
    "freeze": (0.1, 8.0),
    "cut": (0.2, 5.0),
    "memory": (0.5, 5.0),
    "disk-full": (0.5, 5.0),
}


@dataclass(frozen=True, slots=True)
class Blow:
    """One fault: seconds since the first one was awaited, what it is, whom it befalls, and how long it lasts."""

    at_s: float
    kind: str
    role: str
    lasts_s: float


def blows(seed: int, mtbf_s: float, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Blow]:
    """Without end: exponential gaps of mean `mtbf_s`, each pair of kind and role as likely as any other."""
    rng = random.Random(seed)
    pairs = [(kind, role) for kind in kinds for role in KINDS[kind]]
    at_s = 0.0
    while True:
        at_s += rng.expovariate(1.0 / mtbf_s)
        kind, role = rng.choice(pairs)
        yield Blow(at_s, kind, role, rng.uniform(*LASTS_S.get(kind, (0.0, 0.0))))


def befallen(blow: Blow, alive: Sequence[str]) -> str | None:
    """The role that a blow falls on: the one it names, or the next one of its kind that is there."""
    roles = KINDS[blow.kind]
    first = roles.index(blow.role)
    return next((role for role in (*roles[first:], *roles[:first]) if role in alive or role not in (*PLAYING, *BROKERS)), None)
