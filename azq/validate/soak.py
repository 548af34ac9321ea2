"""`azq validate --soak`: hundreds of versions through the queue, and whether anything grows, leaks or drifts meanwhile."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from azq import games
from azq.arena.searcher import evaluate
from azq.bus.redis import RedisBus
from azq.config import RunSections
from azq.drill.system import RUN, System
from azq.inference.ask.local import LocalEvaluator
from azq.inference.ask.stream import open_stream
from azq.inference.device.model import random_observations
from azq.inference.weights import WeightCatalog, fetch_from
from azq.learner import checkpoint
from azq.learner.step.growth import AVERAGE, under
from azq.metrics import RESIDENT_BYTES
from azq.nets import NetSpec, from_bytes
from azq.process.proc import usage
from azq.replay.readers import SegmentReader
from azq.search.evaluator import Evaluation
from azq.store import open_store
from azq.validate.alone import play_alone
from azq.validate.figures import SoakLine, game_figures, slope_per_100
from azq.validate.queued import PREFIX, Hardship, await_version, started, versions
from azq.validate.versions import HOST, first_difference

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
