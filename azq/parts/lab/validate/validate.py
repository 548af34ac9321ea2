"""`azq validate`: the same run in one process and through the queue, compared version by version, and with a baseline."""

from __future__ import annotations

import contextlib
import json
import platform
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from azq import games
from azq.actor import Arenas, SelfPlay, Slice
from azq.bus.embedded import EmbeddedServer
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import RunSections
from azq.console.table import tabled
from azq.errors import ConfigError, NotFound, StateConflict
from azq.inference.ask.local import LocalEvaluator
from azq.inference.weights import WeightCatalog, fetch_from
from azq.learner.opening import LearnerSetup, prepare_training
from azq.learner.tracking.tracker import Trackers
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.parts.lab.drill.system import RUN, System
from azq.parts.lab.validate.versions import (
    HOST,
    FirstDifference,
    LockstepVersion,
    fingerprint,
    first_difference,
    lockstep_sections,
    overrides_of,
    version_of,
)
from azq.search.evaluator import Evaluator
from azq.status.observe import read_weights
from azq.store import open_store
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Job


class Baseline(msgspec.Struct, frozen=True):
    """The part of a report that another run is compared with."""

    game: str
    machine: str
    settings: str  # fingerprint
    passed: bool
    versions: list[LockstepVersion]


def machine_kind() -> str:
    """What rounding depends on: the CPU's kind, what torch makes of it, torch's version, and the precision."""
    import torch

    path = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in (path.read_text("utf-8", "replace") if path.is_file() else "").splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    cpu = "-".join(facts.get(name, "?") for name in ("vendor_id", "cpu family", "model"))
    return f"{platform.machine()} {cpu} {torch.backends.cpu.get_cpu_capability()} torch-{torch.__version__.partition('+')[0]} float32"


def shipped_baseline(game: str, machine: str, settings: str) -> Baseline | str:
    """The one in the repository, or why there is none."""
    of_game = [baseline for baseline in _shipped() if baseline.game == game]
    ours = [baseline for baseline in of_game if baseline.machine == machine]
    fitting = [baseline for baseline in ours if baseline.settings == settings]
    if fitting:
        return fitting[0]
    return f"none of {game} with these settings" if ours else f"none of {game} on this kind of machine ({machine})"


def read_baseline(path: Path, game: str, machine: str, settings: str) -> Baseline:
    """One in a file; `ConfigError` where that does not fit this run."""
    try:
        baseline = _read(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"baseline {path} cannot be read: {error.strerror}; `azq validate --json` writes one") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"baseline {path} is no answer of `azq validate --json`: {error}") from None
    for what, ours in (("game", game), ("machine", machine), ("settings", settings)):
        if (theirs := getattr(baseline, what)) != ours:
            remedy = "leave --baseline out, or make one here: azq validate --json > FILE"
            raise ConfigError(f"baseline {path} is of another {what} ({theirs}, not {ours}); {remedy}")
    return baseline


def _shipped() -> Iterator[Baseline]:
    for file in (resources.files("azq.parts.lab.validate") / "baselines").iterdir():
        if file.name.endswith(".json"):
            yield _read(file.read_bytes())


def _read(data: bytes) -> Baseline:
    return msgspec.json.decode(data, type=Baseline)


RUN_ALONE = "alone"
FOR_EVER_S = 1e6


def play_alone(sections: RunSections, folder: Path) -> Iterator[LockstepVersion]:
    """The versions of such a run, one after the other, for as long as they are asked for; what it makes lies in `folder`."""
    return (version for version, _ in watch_alone(sections, folder))


def watch_alone(sections: RunSections, folder: Path) -> Generator[tuple[LockstepVersion, Evaluator]]:
    """The same, each version with an evaluator that knows it and all before."""
    game, server = games.load(sections.run.game, **sections.run.params), EmbeddedServer("control", folder / "broker")
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        server.start()
        client = stack.enter_context(contextlib.closing(connect(server.url, blocking=True)))
        bus, ledger, store = RedisBus(client), Ledger(client), open_store("file", directory=folder / "weights")
        ledger.create_run(record_of(RUN_ALONE, sections, folder, now_ms()))
        prepare_training(sections.learner)
        setup = LearnerSetup(
            RUN_ALONE, folder, sections, game, bus=bus, ledger=ledger, store=store, tracker=Trackers([]), consumer=RUN_ALONE
        )
        learner, arenas, never, yielded = setup.open(), Arenas(), threading.Event(), 0
        stack.callback(learner.ranks.close)
        evaluator = LocalEvaluator.from_catalog(game, WeightCatalog(bus, RUN_ALONE), fetch_from(store), HOST)
        stack.enter_context(contextlib.closing(evaluator))
        while True:
            learner.taking.turn()
            learner.turn(never)
            newest = read_weights(bus, RUN_ALONE)[0]
            if newest.version > yielded:
                yielded = newest.version
                yield version_of(newest, sections), evaluator
                _play(ledger, sections, game, evaluator, arenas)


def _play(ledger: Ledger, sections: RunSections, game: games.Game, evaluator: Evaluator, arenas: Arenas) -> None:
    """All games that may be opened, to their ends."""
    job = ledger.enqueue(Job("", RUN_ALONE, Kind.SELFPLAY, "cpu", games=sections.learner.lockstep_games, slice_s=FOR_EVER_S))
    lease = ledger.claim(job.job.job_id, 1, RUN_ALONE, FOR_EVER_S)
    assert lease is not None, "a fresh job of a running run"
    SelfPlay(ledger, Slice(lease, sections, game), evaluator, arenas, should_stop=lambda: not ledger.counts(RUN_ALONE).open).run()


PATIENCE_S = 60.0  # for a version
MOMENT_S = 0.4  # a version is played within about so long
PREFIX = "azq-validate-"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Workers of the queue, and the faults that are injected."""

    workers: int = 2
    kill: bool = False  # a process that plays, infers or learns, while each version is made
    stop: bool = False  # all of it, once, and start it again
    seed: int = 0  # of what is random about it

    def __str__(self) -> str:
        what = [f"{self.workers} workers", *(["kills"] if self.kill else []), *(["a stop"] if self.stop else [])]
        return f"queue with {', '.join(what)}"


def play_queued(sections: RunSections, faults: FaultPlan, count: int) -> list[LockstepVersion]:
    """The first `count` versions; raises `EvaluationTimeout` where one does not come, `StateConflict` where a game was given up."""
    with started(sections, faults) as system:
        rng, stop_at = random.Random(faults.seed), max(1, count // 2) if faults.stop else 0
        for number in range(1, count):
            await_version(system, number)
            if faults.kill:
                system.rest(time.monotonic() + rng.uniform(0.0, MOMENT_S))
                _kill_one(system, rng)
            if number == stop_at:
                system.stop()
                system.start()
        await_version(system, count)
        return versions(system, sections)[:count]


def await_version(system: System, number: int) -> None:
    """Returns once it was published; raises as `play_queued`."""
    system.until(lambda: _has(system, number), f"version {number}", PATIENCE_S)


def versions(system: System, sections: RunSections) -> list[LockstepVersion]:
    """What was published so far, oldest first."""
    events = system.query(lambda client: read_weights(RedisBus(client), RUN, 100_000)) or []
    return [version_of(event, sections) for event in reversed(events)]


def started(sections: RunSections, faults: FaultPlan) -> System:
    """A system that plays such a run for the length of a block; its folder is deleted at the end unless something failed."""
    host = [f"inference.{name}={json.dumps(value)}" for name, value in HOST.model_dump(exclude_unset=True).items()]
    overrides = [*overrides_of(sections), *host, f"worker.concurrency={faults.workers}"]
    return System(None, sections.run.game, overrides, prefix=PREFIX)


def _has(system: System, number: int) -> bool:
    """Whether a version was published."""
    counts = system.counts()
    if counts is not None and counts.abandoned:
        raise StateConflict(f"{counts.abandoned} games were given up, and lockstep goes on without none; see {system.folder}")
    newest = system.query(lambda client: read_weights(RedisBus(client), RUN))
    return bool(newest and newest[0].version >= number)


def _kill_one(system: System, rng: random.Random) -> None:
    processes = system.kin.processes()
    playing = system.kin.below(processes["selfplay"]) if "selfplay" in processes else []
    targets = [*playing, *(victim for role, victim in processes.items() if role in ("selfplay", "learner", "inference"))]
    if targets:
        with contextlib.suppress(NotFound):
            system.kin.send(signal.SIGKILL, rng.choice(sorted(targets, key=lambda victim: victim.pid)))


ALONE = "one process"


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What came of it."""

    game: str
    seed: int
    machine: str
    settings: str
    versions: Sequence[LockstepVersion]  # of one process
    runs: dict[str, str]  # last hash by what the run was
    baseline: str
    first_difference: FirstDifference | None

    @property
    def passed(self) -> bool:
        return self.first_difference is None

    def values(self) -> dict[str, Any]:
        """For machines, and for later runs as a baseline."""
        return {**asdict(self), "hash": self.versions[-1].hash, "passed": self.passed}

    def as_text(self) -> list[str]:
        rows = [(version.number, version.hash[:16], version.step, version.games) for version in self.versions]
        lines = [*tabled(rows, "#version", "hash", "#step", "#games"), *(f"{run}: {hash[:16]}" for run, hash in self.runs.items())]
        lines.append(f"baseline: {self.baseline}")
        if (first := self.first_difference) is not None:
            hashes = f"{first.hash[:16]}, not {first.expected[:16]}"
            lines.append(f"{first.run}: version {first.version} differs, by its {first.differs}: {hashes}")
        return [*lines, "passed" if self.passed else "failed"]


def validate(
    game: str,
    iterations: int,
    seed: int,
    evaluator: str,
    faults: FaultPlan,
    repeat: int,
    baseline_file: Path | None,
    progress: Callable[[str], None],
) -> ValidationReport:
    """Plays it alone, then `repeat` times through the queue, each time with other kills.

    Raises `ConfigError` for a game or baseline that does not fit, and what `play_queued` raises.
    """
    games.load(game)  # an unknown one ends here
    sections, count = lockstep_sections(game, seed, evaluator), iterations + 1
    machine, settings = machine_kind(), fingerprint(sections)
    expected: Baseline | str = shipped_baseline(game, machine, settings)
    if baseline_file is not None:
        expected = read_baseline(baseline_file, game, machine, settings)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        alone = list(islice(play_alone(sections, Path(folder)), count))
    runs, differences = {ALONE: alone[-1].hash}, []
    progress(f"{ALONE}: {alone[-1].hash[:16]}")
    if isinstance(expected, Baseline):
        differences.append(first_difference(ALONE, alone, expected.versions))
    baseline = expected if isinstance(expected, str) else "differs" if differences[0] else "agrees"
    for number in range(repeat):
        plan = replace(faults, seed=faults.seed + number)
        name = f"{plan}, run {number + 1}" if repeat > 1 else str(plan)
        queued = play_queued(sections, plan, count)
        runs[name] = queued[-1].hash
        progress(f"{name}: {runs[name][:16]}")
        differences.append(first_difference(name, queued, alone))
    return ValidationReport(game, seed, machine, settings, alone, runs, baseline, next(filter(None, differences), None))
