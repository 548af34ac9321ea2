"""`azq validate --bands`: other seeds of a game's curve, held against the band that is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from azq import games
from azq.console.report import ReportSection, as_markdown
from azq.errors import ConfigError
from azq.files import write_output
from azq.parts.lab.validate.bands import LEAST_SEEDS, Band, BandVerdict, cpu_ratio, judge, spread
from azq.parts.lab.validate.curve import band_sections, curves_of, metric_of, plan_of
from azq.parts.lab.validate.validate import machine_kind
from azq.parts.lab.validate.versions import fingerprint
from azq.process.source import commit, files_sha256

SAME = ("game", "metric", "settings")  # in a band and in what is compared with it


@dataclass(frozen=True, slots=True)
class BandRequest:
    """The command line's arguments."""

    game: str
    seeds: int = 5
    first_seed: int = 0  # 0: the first that the band does not have
    processes: int = 2
    band: Path | None = None  # a band other than the repository's
    out: Path | None = None  # folder for the curves, with which a later call continues


@dataclass(frozen=True, slots=True)
class BandReport:
    """What came of it."""

    band: Band | None
    measured: Band
    verdicts: Sequence[BandVerdict]  # one a point; none without a band

    @property
    def cpu_ratio(self) -> float | None:
        """CPU-seconds as a multiple of the band's; None without one of this kind of machine."""
        return cpu_ratio(self.band, self.measured) if self.band and self.band.machine == self.measured.machine else None

    @property
    def passed(self) -> bool:
        return all(verdict.verdict == "within" for verdict in self.verdicts)

    def values(self) -> dict[str, Any]:
        """For machines."""
        verdicts = {"verdicts": [asdict(verdict) for verdict in self.verdicts], "cpu_ratio": self.cpu_ratio, "passed": self.passed}
        return {**msgspec.to_builtins(self.measured), **verdicts}

    def as_text(self) -> str:
        """The verdict, and a line a point."""
        return as_markdown(f"Band of {self.measured.game}", [self._section()]).rstrip()

    def _section(self) -> ReportSection:
        note = f"{self.measured.metric}, {len(self.measured.curves)} seeds"
        if self.band is None:
            rows = [(str(at.step), f"{at.mean:.4f}", f"{at.low:.4f}", f"{at.high:.4f}") for at in spread(self.measured.curves)]
            return ReportSection("", ("step", "mean", "least", "most"), rows, note=f"{note}; there is no band to compare with")
        cpu = "CPU-seconds of another kind of machine" if self.cpu_ratio is None else f"CPU-seconds {self.cpu_ratio:.2f} times the band's"
        note += f"; the band has {len(self.band.curves)}, of commit {self.band.commit}; {cpu}; {'passed' if self.passed else 'failed'}"
        judged = [(str(at.step), f"{at.band:.4f}", f"{at.found:.4f}", f"{at.p:.4f}", at.verdict) for at in self.verdicts]
        return ReportSection("", ("step", "band", "found", "p", "verdict"), judged, note=note)


def check_bands(request: BandRequest, progress: Callable[[str], None]) -> BandReport:
    """Runs the seeds that `out` does not have yet, and judges all. Raises `ConfigError` for what does not fit, and as `curves_of`."""
    if request.seeds < LEAST_SEEDS:
        raise ConfigError(f"--seeds {request.seeds} are too few, for the fastest and the slowest are dropped; take {LEAST_SEEDS} or more")
    measured = _without_curves(request.game)
    band = _band_for(measured, request)
    first = request.first_seed or 1 + max((curve.seed for curve in band.curves) if band else (0,))
    seeds = range(first, first + request.seeds)
    measured = _resumed(measured, request.out, seeds)
    left = sorted(set(seeds) - {curve.seed for curve in measured.curves})
    for curve in curves_of(request.game, left, request.processes, progress):
        measured = measured.having([*measured.curves, curve])
        if request.out is not None:
            write_output(request.out / measured.file_name, msgspec.json.format(msgspec.json.encode(measured)))
    return BandReport(band, measured, judge(band, measured) if band else [])


def _without_curves(game: str) -> Band:
    """A band that this azq is still to measure. Raises `ConfigError` for a game that cannot be."""
    if plan_of(game).mute:
        raise ConfigError(f"{game} has no curve to compare: {plan_of(game).mute}; let whole runs learn, and `azq compare` them")
    sections = band_sections(game, 0)
    rules = games.load(game, **sections.run.params)
    if sections.arena.opponents and rules.num_players() < 2:
        raise ConfigError(f"{game} has neither graded positions nor a second player, so nothing tells how strong a run is; grade some")
    settings = f"{fingerprint(sections)} at {','.join(map(str, plan_of(game).versions))}"
    return Band(game, metric_of(game), settings, machine_kind(), commit(), files_sha256(), [])


def _band_for(measured: Band, request: BandRequest) -> Band | None:
    """The band to compare with; None where there is none and `out` asks for one. Raises `ConfigError` for one that does not fit."""
    making = f"azq validate --bands {measured.game} --seeds 12 --out FOLDER"
    file = request.band or resources.files("azq.parts.lab.validate") / "bands" / measured.file_name
    if not file.is_file():
        if request.band is None and request.out is not None:
            return None
        raise ConfigError(f"no band of {measured.game} is at {file}; make one: {making}")
    band = _read(file)
    for name in SAME:
        theirs, ours = getattr(band, name), getattr(measured, name)
        if theirs != ours:
            raise ConfigError(
                f"band {file} is of another {name} ({theirs}, not {ours}); name another, or delete it and make it again: {making}"
            )
    return band


def _resumed(measured: Band, out: Path | None, seeds: Sequence[int]) -> Band:
    """With what `out` has of these seeds already. Raises `ConfigError` where another program made that."""
    if out is None or not (file := out / measured.file_name).is_file():
        return measured
    resumed = _read(file)
    if msgspec.structs.replace(resumed, commit=measured.commit, curves=[]) != measured:
        raise ConfigError(f"{file} has curves of another program, machine or settings; delete it, or give another --out")
    return resumed.having([curve for curve in resumed.curves if curve.seed in seeds])


def _read(file: Path | Traversable) -> Band:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Band)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"band {file} cannot be read: {error}; azq validate --bands GAME --out FOLDER writes one") from None
