"""`azq validate`: the same run in one process and through the queue, compared version by version, and with a baseline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from azq import games
from azq.validate.alone import play_alone
from azq.validate.baselines import Baseline, kept_baseline, machine_kind, read_baseline
from azq.validate.queued import PREFIX, Hardship, play_queued
from azq.validate.versions import FirstDifference, LockstepVersion, fingerprint, first_difference, lockstep_sections

ALONE = "one process"


@dataclass(frozen=True, slots=True)
class Validation:
    """What is asked for."""

    game: str = "tic_tac_toe"
    iterations: int = 6
    seed: int = 0
    evaluator: str = "stream"
    hardship: Hardship = field(default_factory=Hardship)
    repeat: int = 1  # times through the queue, each with other kills
    baseline: Path | None = None


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
        lines = [f"{number.number:>4}  {number.hash[:16]}  step {number.step:<6} {number.games} games" for number in self.versions]
        lines += [f"{run}: {hash[:16]}" for run, hash in self.runs.items()]
        lines.append(f"baseline: {self.baseline}")
        if (first := self.first_difference) is not None:
            hashes = f"{first.hash[:16]}, not {first.expected[:16]}"
            lines.append(f"{first.run}: version {first.version} differs, by its {first.differs}: {hashes}")
        return [*lines, "passed" if self.passed else "failed"]


def validate(asked: Validation, tell: Callable[[str], None]) -> ValidationReport:
    """Plays it all; raises `ConfigError` for a game or baseline that does not fit, and what `play_queued` raises."""
    games.load(asked.game)  # an unknown one ends here
    sections, count = lockstep_sections(asked.game, asked.seed, asked.evaluator), asked.iterations + 1
    machine, settings = machine_kind(), fingerprint(sections)
    kept: Baseline | str = kept_baseline(asked.game, machine, settings)
    if asked.baseline is not None:
        kept = read_baseline(asked.baseline, asked.game, machine, settings)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        alone = list(islice(play_alone(sections, Path(folder)), count))
    runs, found = {ALONE: alone[-1].hash}, []
    tell(f"{ALONE}: {alone[-1].hash[:16]}")
    if isinstance(kept, Baseline):
        found.append(first_difference(ALONE, alone, kept.versions))
    baseline = kept if isinstance(kept, str) else "differs" if found[0] else "agrees"
    for number in range(asked.repeat):
        hardship = replace(asked.hardship, seed=asked.hardship.seed + number)
        name = f"{hardship}, run {number + 1}" if asked.repeat > 1 else str(hardship)
        queued = play_queued(sections, hardship, count)
        runs[name] = queued[-1].hash
        tell(f"{name}: {runs[name][:16]}")
        found.append(first_difference(name, queued, alone))
    return ValidationReport(asked.game, asked.seed, machine, settings, alone, runs, baseline, next(filter(None, found), None))
