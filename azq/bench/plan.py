"""What `azq bench all` measures, with what sizes, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from azq.config import NetworkConfig
from azq.errors import ConfigError

LATENCY_BATCH = 256
PEERS = ("pgx", "openspiel")
SIMULATIONS = (200, 32)  # of self-play


@dataclass(frozen=True, slots=True)
class Case:
    """A game with the network it is measured with; `batch` leaves are one group's, and the bare network's."""

    name: str
    game: str
    network: NetworkConfig
    batch: int
    learner_batch: int
    threads: int = 1  # of the search
    params: Mapping[str, Any] = field(default_factory=dict)
    groups: int = 2  # of games in turn; on a GPU two are under way at any moment, and one is searched


def _network(kind: Literal["resnet", "mlp", "transformer"], blocks: int, channels: int, **options: Any) -> NetworkConfig:
    return NetworkConfig(kind=kind, blocks=blocks, channels=channels, **options)


BLOB: Mapping[str, Any] = {"players": 4, "cards": 5, "trump": "any"}
CASES: dict[str, tuple[Case, ...]] = {
    "tiny": (
        Case("connect four 1x8", "connect_four", _network("resnet", 1, 8), 32, 64),
        Case("tic-tac-toe mlp 1x16", "tic_tac_toe", _network("mlp", 1, 16), 32, 64),
    ),
    "small": (
        Case("connect four 3x32", "connect_four", _network("resnet", 3, 32), 512, 512),
        Case("othello 3x32", "othello", _network("resnet", 3, 32), 192, 512),
        Case("backgammon mlp 3x128", "backgammon", _network("mlp", 3, 128), 512, 1024),
        Case("blob mlp 3x192", "blob", _network("mlp", 3, 192), 128, 1024, params=BLOB),
        Case("beasty bar transformer 2x64", "beasty_bar", _network("transformer", 2, 64, heads=4), 128, 256),
    ),
    "full": (
        Case("connect four 5x128", "connect_four", _network("resnet", 5, 128), 8192, 16384, 3, groups=3),
        Case("othello 10x128", "othello", _network("resnet", 10, 128), 4096, 8192, 3, groups=3),
        Case("backgammon mlp 6x512", "backgammon", _network("mlp", 6, 512), 8192, 16384, 3, groups=3),
        # Trees over information sets are large, about 2 MB a game at 200 simulations: fewer games, else touching them outlasts the warm-up.
        Case("blob mlp 6x512", "blob", _network("mlp", 6, 512), 2048, 16384, 3, BLOB),
        Case("beasty bar transformer 4x256", "beasty_bar", _network("transformer", 4, 256, heads=8), 2048, 4096, 3, groups=3),
    ),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement: of a case, or of a peer at its size. `overhead_s` passes before and after anything is measured."""

    kind: str  # network | selfplay | learner | latency | pgx | openspiel
    case: str
    num_simulations: int = 0  # of kinds that search
    weight: float = 1.0  # share of the time that is left over
    min_s: float = 2.0
    max_s: float = 20.0
    overhead_s: float = 8.0

    @property
    def name(self) -> str:
        """`kind/case`, with the simulations where it searches."""
        return f"{self.kind}/{self.case}" + (f"/{self.num_simulations}" if self.num_simulations else "")


def split(parts: Sequence[Part], budget_s: float) -> dict[str, float]:
    """Seconds for each part that fits, by name, so that all of them, overheads included, take no more than the budget.

    Parts come in the order of their importance: the first ones that fit with their least time stay, a part that does not fit is left out
    and a smaller one after it may still fit. What is left over is shared by weight, up to each part's most.
    """
    chosen: list[Part] = []
    left_s = budget_s
    for part in parts:
        if part.overhead_s + part.min_s <= left_s:
            chosen.append(part)
            left_s -= part.overhead_s + part.min_s
    seconds = {part.name: part.min_s for part in chosen}
    open_ = [part for part in chosen if part.max_s > part.min_s]
    while open_ and left_s > 1e-6:
        each_s = left_s / sum(part.weight for part in open_)
        for part in open_:
            more = min(each_s * part.weight, part.max_s - seconds[part.name])
            seconds[part.name] += more
            left_s -= more
        open_ = [part for part in open_ if seconds[part.name] < part.max_s - 1e-6]
    return seconds


def cases(size: str) -> tuple[Case, ...]:
    """The games and networks of a size; `ConfigError` for one that is none."""
    if size not in CASES:
        raise ConfigError(f"--size {size!r} is none; choose of {', '.join(CASES)}")
    return CASES[size]


def parts(size: str, which: Sequence[Case], *, on_gpu: bool, peers: Sequence[str]) -> tuple[Part, ...]:
    """Everything to measure, the most telling first: the first case, then its peers, then the others."""
    first, *others = which

    def timed(kind: str, case: Case, num_simulations: int = 0, *, overhead_s: float, min_s: float = 2.0, weight: float = 1.0) -> Part:
        if size == "tiny":
            return Part(kind, case.name, num_simulations, min_s=0.5, max_s=1.0, overhead_s=4.0)
        return Part(kind, case.name, num_simulations, weight, min_s, 20.0, overhead_s)

    def of(case: Case) -> list[Part]:
        starting_s = 20.0 if on_gpu else 14.0
        return [
            timed("network", case, overhead_s=10.0),
            *(timed("selfplay", case, count, overhead_s=starting_s, min_s=5.0, weight=2.0) for count in SIMULATIONS),
            timed("learner", case, overhead_s=8.0),
        ]

    compiling_s = 45.0 if on_gpu else 20.0
    asked = [(peer, count) for peer in peers for count in (SIMULATIONS if peer == "pgx" else (200,)) if first.game == "connect_four"]
    beside = [timed(peer, first, count, overhead_s=compiling_s, min_s=5.0, weight=2.0) for peer, count in asked]
    rest = [part for case in others for part in of(case)]
    # Self-play at 32 simulations of the other games goes last: it says least that the other figures do not.
    rest.sort(key=lambda part: (part.num_simulations == 32, part.kind == "learner"))
    return (*of(first), timed("latency", first, overhead_s=8.0), *beside, *rest)
