"""`azq validate --soak`: hundreds of versions through the queue, and whether anything grows, leaks or drifts meanwhile."""

from __future__ import annotations

import contextlib
import math
import random
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import torch

from azq import games
from azq.arena.searcher import evaluate
from azq.bus.redis import RedisBus
from azq.config import LearnerConfig, RunSections
from azq.console import report as pages
from azq.console.report import ReportSection
from azq.console.svg import line_chart
from azq.files import make_folders, publish_file
from azq.inference.ask.local import LocalEvaluator
from azq.inference.ask.stream import open_stream
from azq.inference.device.model import random_observations
from azq.inference.weights import WeightCatalog, fetch_from
from azq.learner import checkpoint
from azq.learner.step.growth import AVERAGE, under
from azq.metrics import RESIDENT_BYTES
from azq.nets import NetSpec, from_bytes
from azq.parts.lab.drill.system import RUN, System
from azq.parts.lab.validate.validate import PREFIX, Hardship, await_version, play_alone, started, versions
from azq.parts.lab.validate.versions import HOST, first_difference
from azq.process.proc import usage
from azq.replay.readers import SegmentReader
from azq.replay.samples import POLICY_TOLERANCE, Rules
from azq.search.evaluator import Evaluation
from azq.status.curves import CurvePoint
from azq.store import open_store
from azq.wire.arrays import arrays_of
from azq.wire.messages import SampleEvent


@dataclass(frozen=True, slots=True)
class SoakLine:
    """One figure, its bounds, and whether it keeps them."""

    what: str
    found: float
    least: float | None = None
    most: float | None = None

    @property
    def passed(self) -> bool:
        return (-math.inf if self.least is None else self.least) <= self.found <= (math.inf if self.most is None else self.most)

    @property
    def bounds(self) -> str:
        """In words."""
        bounds = (("at least", self.least), ("at most", self.most))
        return " and ".join(f"{word} {value:g}" for word, value in bounds if value is not None)


@dataclass(frozen=True, slots=True)
class GameFigures:
    lines: Sequence[SoakLine]
    curves: Mapping[str, Sequence[float]]  # a point a version


def slope_per_100(curve: Sequence[float]) -> float:
    """By how much a curve rises in 100 points, by least squares; 0 for fewer than two."""
    return 100 * float(np.polyfit(range(len(curve)), curve, 1)[0]) if len(curve) > 1 else 0.0


def game_figures(game: Rules, events: Sequence[SampleEvent], learner: LearnerConfig, iterations: int) -> GameFigures:
    """Of the games of so many versions, ordered by their numbers."""
    by_version = [list(group) for _, group in groupby(events, lambda event: learner.version_for(event.record.uid))][:iterations]
    rows = [_of_version(game, group, learner) for group in by_version]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    lines = [
        SoakLine("versions whose games are not all in the log", sum(len(group) != learner.lockstep_games for group in by_version), most=0),
        SoakLine("plies searched with other weights than their version's", sum(columns.pop("stale")), most=0),
        SoakLine("policy targets that do not sum to 1", sum(columns.pop("unsummed")), most=0),
        SoakLine("largest size of a root value", max(columns.pop("largest value")), most=1.0),
        SoakLine("least mean entropy of a version's targets, nats", min(columns["entropy of targets, nats"]), least=0.01),
        SoakLine("largest share of one result in a version", max(columns["share of first player's wins"]), most=0.999),
    ]
    return GameFigures(lines, columns)


def _of_version(game: Rules, events: Iterable[SampleEvent], learner: LearnerConfig) -> dict[str, float]:
    stale, unsummed, largest, entropies, lengths, wins = 0, 0, 0.0, [0.0], [], []
    for event in events:
        arrays = arrays_of(event.record, game.num_distinct_actions(), game.value_size(), f"game {event.record.uid}")
        searched = arrays["simulations"] > 0
        policies = arrays["policies"][searched].astype(np.float64)
        stale += int((arrays["weight_versions"][searched] != learner.version_for(event.record.uid)).sum())
        unsummed += int((np.abs(policies.sum(1) - 1) > POLICY_TOLERANCE).sum())
        largest = max(largest, float(np.abs(arrays["root_values"][searched]).max(initial=0.0)))
        entropies += (-(policies * np.log(policies, where=policies > 0, out=np.zeros_like(policies))).sum(1)).tolist()
        lengths.append(len(searched))
        wins.append(event.returns[0] > 0)
    return {
        "stale": stale,
        "unsummed": unsummed,
        "largest value": largest,
        "entropy of targets, nats": float(np.mean(entropies)),
        "plies of a game": float(np.mean(lengths)),
        "share of first player's wins": float(np.mean(wins)),
    }


WINDOW = 4096  # samples: filled early, so that what grows afterwards grows for another reason
POSITIONS = 64  # that both sides evaluate after each swap
SETTLED = 0.4  # share of the versions after which memory has to stand still
MOST_MB = 1.0  # per 100 versions
CHECKED = 0.1  # share of the versions after which the newest checkpoint is read


@dataclass(eq=False)
class Soak:
    """What was seen while it ran, by version."""

    balanced: list[bool] = field(default_factory=list)
    duplicates: int = 0
    memory: dict[str, list[float]] = field(default_factory=dict)  # MB by role
    drifted: list[int] = field(default_factory=list)  # versions whose served evaluations differ from those of the published weights
    finite: list[bool] = field(default_factory=list)
    checkpoints: list[bool] = field(default_factory=list)  # read, and whether they hold what was published

    def look(self, system: System) -> None:
        """The ledger's balance, and the memory of each process."""
        if (counts := system.counts()) is not None:
            self.balanced.append(counts.balanced)
            self.duplicates = counts.duplicates_dropped
        for role, process in system.kin.processes().items():
            self.memory.setdefault(role, []).append(usage(process.pid).get(RESIDENT_BYTES, 0.0) / 1e6)

    def compare(self, version: int, served: Evaluation, published: Evaluation) -> None:
        """Evaluations of one version, as the system gives them and as its published weights do."""
        same = np.array_equal(served.logits, published.logits) and np.array_equal(served.values, published.values)
        self.drifted += [] if same else [version]
        self.finite.append(bool(np.isfinite(published.logits).all() and np.isfinite(published.values).all()))

    def verify(self, folder: Path, catalog: WeightCatalog) -> None:
        """Reads the newest checkpoint and compares its average with the weights of its step."""
        found = checkpoint.load_newest(folder / "checkpoints")
        event = next((event for event in catalog.newest_first() if found and event.step == found.state.step), None)
        if found is not None and event is not None:
            published, _ = from_bytes(open_store("file", directory=folder / "weights").get(event.uri, event.sha256))
            ours = under(AVERAGE, found.tensors)
            self.checkpoints.append(all(torch.equal(ours[name], tensor) for name, tensor in published.items()))


@dataclass(frozen=True, slots=True)
class SoakReport:
    game: str
    versions: int
    lines: Sequence[SoakLine]
    curves: Mapping[str, Sequence[float]]

    @property
    def passed(self) -> bool:
        return all(line.passed for line in self.lines)


def soak(sections: RunSections, hardship: Hardship, iterations: int) -> SoakReport:
    """Plays it through the queue and once more in one process; raises what `play_queued` raises."""
    learner = sections.learner.model_copy(update={"max_window": WINDOW})
    sections, count = sections.model_copy(update={"learner": learner}), iterations + 1
    game, seen, rng = games.load(sections.run.game, **sections.run.params), Soak(), random.Random(hardship.seed)
    packed = random_observations(NetSpec.of(game), POSITIONS)
    with started(sections, hardship) as system:
        folder = system.folder / RUN
        with system.client() as client, contextlib.ExitStack() as stack:
            catalog, fetch = WeightCatalog(RedisBus(client), RUN), fetch_from(open_store("file", directory=folder / "weights"))
            published = stack.enter_context(contextlib.closing(LocalEvaluator.from_catalog(game, catalog, fetch, HOST)))
            served = stack.enter_context(contextlib.closing(open_stream(system.config().broker, RUN, sections, game, "soak")))
            for version in range(1, count + 1):
                await_version(system, version)
                seen.look(system)
                seen.compare(version, *(evaluate(each, packed, weight_version=version) for each in (served, published)))
                if rng.random() < CHECKED:
                    seen.verify(folder, catalog)
        found = versions(system, sections)[:count]
        system.stop()
        events = [event for _, event in SegmentReader(folder / "segments").newest(count * learner.lockstep_games)]
    with tempfile.TemporaryDirectory(prefix=PREFIX) as other:
        alone = list(islice(play_alone(sections, Path(other)), count))
    figures = game_figures(game, sorted(events, key=lambda event: event.record.uid), learner, iterations)
    first = first_difference("queue", found, alone)
    lines = [
        SoakLine("versions other than in one process", iterations + 2 - first.version if first else 0, most=0),
        *_lines(seen),
        *figures.lines,
    ]
    return SoakReport(
        sections.run.game, count, lines, {**{f"memory of {role}, MB": curve for role, curve in seen.memory.items()}, **figures.curves}
    )


def _lines(seen: Soak) -> list[SoakLine]:
    settled = {role: curve[int(SETTLED * len(curve)) :] for role, curve in sorted(seen.memory.items())}
    return [
        SoakLine("versions with NaN or infinity", seen.finite.count(False), most=0),
        SoakLine("looks at which the ledger did not balance", seen.balanced.count(False), most=0),
        SoakLine("duplicates dropped", seen.duplicates, most=0),
        SoakLine("swaps after which served and published weights differ", len(seen.drifted), most=0),
        SoakLine("checkpoints read", len(seen.checkpoints), least=1),
        SoakLine("checkpoints that are not what was published", seen.checkpoints.count(False), most=0),
        *(SoakLine(f"memory of {role}, MB per 100 versions", slope_per_100(curve), most=MOST_MB) for role, curve in settled.items()),
    ]


def titled(report: SoakReport) -> str:
    return f"Soak of {report.game}: {report.versions} versions, {'passed' if report.passed else 'failed'}"


def sections_of(report: SoakReport) -> list[ReportSection]:
    """A table of all lines, and the curves over versions."""
    rows = [(line.what, f"{line.found:.4g}", line.bounds, "passed" if line.passed else "failed") for line in report.lines]
    charts = [
        line_chart(name, {name: [CurvePoint(version, value) for version, value in enumerate(curve)]}, "versions", "{:.4g}".format)
        for name, curve in report.curves.items()
    ]
    return [ReportSection("", ("what", "found", "bounds", ""), rows, charts)]


def write_report(report: SoakReport, folder: Path) -> None:
    """`soak.md` and `soak.html`, each whole or not at all."""
    make_folders(folder)
    title, sections = titled(report), sections_of(report)
    publish_file(folder / "soak.md", pages.as_markdown(title, sections).encode())
    publish_file(folder / "soak.html", pages.as_html(title, sections).encode())


def as_markdown(report: SoakReport) -> str:
    """What the command prints."""
    return pages.as_markdown(titled(report), sections_of(report)).rstrip()
