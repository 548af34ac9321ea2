"""What `azq bench all` measures, with what sizes and for how long, and its figures as ratios within the run, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
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
    pairs = [(peer, count) for peer in peers for count in (SIMULATIONS if peer == "pgx" else (200,)) if first.game == "connect_four"]
    beside = [timed(peer, first, count, overhead_s=compiling_s, min_s=5.0, weight=2.0) for peer, count in pairs]
    rest = [part for case in others for part in of(case)]
    # Self-play at 32 simulations of the other games goes last: it says least that the other figures do not.
    rest.sort(key=lambda part: (part.num_simulations == 32, part.kind == "learner"))
    return (*of(first), timed("latency", first, overhead_s=8.0), *beside, *rest)


Figures = Mapping[str, Mapping[str, Any]]
BEGIN, END = "<!-- bench all: begin -->", "<!-- bench all: end -->"
OPEN = "open"  # no figure
#: head of a column -> key of a summary's row
NETWORKS = {
    "bare network, evaluations/s": "bare_evaluations_per_s",
    "through the stream": "stream_evaluations_per_s",
    "stream / bare": "stream_over_bare",
    "per CPU-second": "stream_over_bare_cpu",
    "learner, samples/s": "learner_samples_per_s",
    "learner / bare loop": "learner_over_bare",
}
SELFPLAY = {
    "self-play evaluations/s, 200 simulations": "selfplay_200_evaluations_per_s",
    "/ bare": "selfplay_over_bare",
    "per CPU-second": "selfplay_over_bare_cpu",
    "simulations/s, 200": "selfplay_200_simulations_per_s",
    "simulations/s, 32": "selfplay_32_simulations_per_s",
    "mean batch / largest": "batch_filled",
    "network busy": "network_busy",
    "GPU busy": "gpu_busy",
    "cores, all processes": "cpu_cores",
}
Source = tuple[str, str]  # a part of the case, and its figure
BARE, DEEP = ("network", "bare_evaluations_per_s"), "selfplay/200"
#: key of a summary's row -> where it is taken from
TAKEN: dict[str, Source] = {
    "bare_evaluations_per_s": BARE,
    "stream_evaluations_per_s": ("network", "stream_evaluations_per_s"),
    "mean_batch": (DEEP, "inference_mean_batch"),
    "network_busy": (DEEP, "network_busy"),
    "gpu_busy": (DEEP, "gpu_busy"),
    "cpu_cores": (DEEP, "cpu_cores"),
    "learner_samples_per_s": ("learner", "samples_per_s"),
    "learner_over_bare": ("learner", "share_of_bare"),
    **{
        f"selfplay_{count}_{name}": (f"selfplay/{count}", name)
        for count in SIMULATIONS
        for name in ("evaluations_per_s", "simulations_per_s", "simulations_per_cpu_s", "games_per_s")
    },
}
#: the same, of ratios -> what is divided by what
RATIOS: dict[str, tuple[Source, Source]] = {
    "stream_over_bare": (("network", "stream_evaluations_per_s"), BARE),
    "stream_over_bare_cpu": (("network", "stream_evaluations_per_cpu_s"), ("network", "bare_evaluations_per_cpu_s")),
    "selfplay_over_bare": ((DEEP, "evaluations_per_s"), BARE),
    "selfplay_over_bare_cpu": ((DEEP, "evaluations_per_cpu_s"), ("network", "bare_evaluations_per_cpu_s")),
    **{
        f"azq_over_{peer}_{count}{suffix}": ((f"selfplay/{count}", name), (f"{peer}/{count}", name))
        for peer in PEERS
        for count in SIMULATIONS
        for suffix, name in (("", "simulations_per_s"), ("_cpu", "simulations_per_cpu_s"))
    },
}


def ratio(above: float | None, below: float | None) -> float | None:
    """Their quotient; None where one of them is not known or the lower one is zero."""
    return None if not above or not below else round(above / below, 3)


def summary(which: Sequence[Case], figures: Figures) -> list[dict[str, Any]]:
    """A row a case: rates per second of wall time, per CPU-second on a CPU's own account, and ratios within this run."""
    return [_row(case, figures) for case in which]


def _row(case: Case, figures: Figures) -> dict[str, Any]:
    def figure(source: Source) -> Any:
        kind, _, simulations = source[0].partition("/")
        part = f"{kind}/{case.name}/{simulations}".rstrip("/")
        return figures.get(part, {}).get(source[1])

    row: dict[str, Any] = {"case": case.name, "batch": case.batch} | {name: figure(source) for name, source in TAKEN.items()}
    ratios = {name: ratio(figure(above), figure(below)) for name, (above, below) in RATIOS.items()}
    return row | ratios | {"batch_filled": ratio(row["mean_batch"], case.batch)}


def markdown(result: Mapping[str, Any]) -> str:
    """Tables of a run with its machine and commit, as they stand in the documentation."""
    about = result["machine"]
    version = f"commit `{about['commit']}`" if about["commit"] else "commit unknown"
    options = [f"--size {result['size']}", *(f"--set {text}" for text in result.get("settings", ()))]
    lines = [
        f"{about['device_name']}, {about['cores']} cores, {about['precision']}, torch {about['torch']}, {version}; "
        f"`azq bench all {' '.join(options)}`, {result['minutes']:.1f} minutes, load {about['load_before']} before it began. "
        "Rates are per second of wall time, the network on one thread where it runs on a CPU; ratios are within this run.",
        "",
    ]
    rows = result["summary"]
    for columns in (NETWORKS, SELFPLAY):
        lines += table(["network, batch", *columns], [_cells(row, columns) for row in rows])
    return "\n".join([*lines, *_peers(rows), *_latency(result["parts"]), *_left_out(result["left_out"])]).rstrip() + "\n"


def _cells(row: Mapping[str, Any], columns: Mapping[str, str]) -> list[str]:
    return [f"{row['case']}, {row['batch']:,}", *(number(row[key]) for key in columns.values())]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table and an empty line."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows), ""]


def number(value: float | None) -> str:
    """A figure with three digits or whole; `open` where there is none."""
    if value is None:
        return OPEN
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def replace_section(path: Path, text: str) -> None:
    """Puts the text between the two marks of a file. Raises `ConfigError` where they are missing."""
    old = path.read_text("utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise ConfigError(f"{path} has no section between {BEGIN} and {END}; put the two lines where the tables belong")
    before, after = old[: old.index(BEGIN)], old[old.index(END) :]
    path.write_text(f"{before}{BEGIN}\n{text}{after}", "utf-8")


def _peers(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [
        (peer, str(count), number(row[f"azq_over_{peer}_{count}"]), number(row[f"azq_over_{peer}_{count}_cpu"]))
        for row in rows
        for peer in PEERS
        for count in SIMULATIONS
        if row[f"azq_over_{peer}_{count}"] is not None
    ]
    return table(("azq over", "simulations", "simulations/s", "per CPU-s"), cells) if cells else []


def _latency(parts: Figures) -> list[str]:
    rows = [
        (
            name.partition("/")[2],
            str(figures["batch"]),
            *(number(figures[key]) for key in ("bare_p50_ms", "round_trip_p50_ms", "round_trip_p99_ms", "added_p50_ms", "added_p99_ms")),
        )
        for name, figures in parts.items()
        if name.startswith("latency/")
    ]
    head = ("one request at a time", "batch", "bare p50, ms", "round trip p50", "p99", "added p50", "added p99")
    return table(head, rows) if rows else []


def _left_out(reasons: Mapping[str, str]) -> list[str]:
    return [f"Not measured: {'; '.join(f'{name} ({reason})' for name, reason in reasons.items())}.", ""] if reasons else []
