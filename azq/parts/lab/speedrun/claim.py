"""An entry's claim: its seeds, each from nothing to its target in a separate run, and the check of their logs, games and weights."""

from __future__ import annotations

import hashlib
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from azq.arena.regret import Mean
from azq.config import load, merge
from azq.config.loading import to_toml
from azq.console.move import weight_version, weights_file
from azq.console.replay import replay_game
from azq.errors import AzqError, ConfigError, EngineError, EvaluationTimeout
from azq.files import write_output
from azq.findings import Finding
from azq.host.devices import Machine, detect
from azq.host.rundir import RunDir
from azq.local import Local
from azq.nets.weights import describe
from azq.parts.lab.bench.suite import processor
from azq.parts.lab.speedrun import rules
from azq.parts.lab.speedrun.exam import OWN, examine, missing, sheet_of
from azq.parts.lab.speedrun.rules import LOG, RUN, Graded, SeedLog, SpeedrunEntry, SpeedrunRules, Track, read
from azq.presets import preset
from azq.process.source import commit
from azq.ratings.positions import Position
from azq.replay.readers import SegmentReader
from azq.search.replay import DIFFERS
from azq.stats import chance_above

LOOK_S, CLOCK_S = 0.5, 1.0
EXAM_SHARE = 0.25  # of the time, at most, that versions are examined beside the run
KEPT_PARTS = ("run.toml", "segments", "weights")  # of a run's folder, beside the log
MOST_GAMES = 1 << 32
MOST_DIFFERING = 0.02  # of replayed plies; 1 to 6 of 185,542 honest ones were rounded so far apart (docs/research.md)

Progress = Callable[[str], None]


def run_entry(entry: SpeedrunEntry, tracks: SpeedrunRules, folder: Path, seeds: int, progress: Progress) -> list[SeedLog]:
    """Runs the seeds that `folder` does not have yet. Raises `ConfigError` where they are another entry's, or the machine does not fit."""
    (track, kind), here = tracks.places(entry), detect()
    if misfit := kind.misfit(here.cores, len(here.gpus)):
        raise ConfigError(f"this machine has {misfit}; name an entry of another class, or run this one elsewhere")
    if track.exam.startswith("gtp:") and (why := missing(track)):
        raise EngineError(why)
    if (folder / rules.ENTRY).exists() and read(SpeedrunEntry, folder / rules.ENTRY) != entry:
        raise ConfigError(f"{folder} has seeds of another entry; give another --out")
    write_output(folder / rules.ENTRY, to_toml(msgspec.to_builtins(entry)).encode())
    return [_seed_log(entry, track, here, seed, folder / f"seed-{seed}", progress) for seed in range(1, seeds + 1)]


def _seed_log(entry: SpeedrunEntry, track: Track, here: Machine, seed: int, folder: Path, progress: Progress) -> SeedLog:
    if (folder / LOG).exists():
        return read(SeedLog, folder / LOG)
    shutil.rmtree(folder, ignore_errors=True)  # of one that was interrupted
    options = ["--until", f"minutes={track.minutes:g}", *(["--preset", entry.preset] if entry.preset else [])]
    settings, sheet, begun_s = entry.overrides(track.params, seed), sheet_of(track), time.time()
    with Local(track.game, run=RUN, settings=settings, options=options, folder=folder / "work") as run, clocked(run, begun_s) as clock:
        rows, losses, ended = followed(run, track, sheet, clock, begun_s, lambda line: progress(f"seed {seed}: {line}"))
    (folder / RUN).mkdir()
    for part in KEPT_PARTS:
        (run.folder / RUN / part).rename(folder / RUN / part)
    shutil.rmtree(run.folder)
    gpus, files = [gpu.name for gpu in here.gpus], digests(folder / RUN)
    log = SeedLog(entry, seed, processor(), here.cores, gpus, commit(), clock, rows, losses, ended, files).sealed()
    write_output(folder / LOG, msgspec.json.encode(log))
    return log


@contextmanager
def clocked(run: Local, begun_s: float) -> Iterator[rules.Clock]:
    """What a run has cost, read each second by a thread, for an exam takes longer."""
    clock, over = [(0.0, 0.0)], threading.Event()

    def tick() -> None:
        while not over.wait(CLOCK_S):
            clock.append((round(time.time() - begun_s, 2), max(clock[-1][1], round(run.cpu_s(), 2))))

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield clock
    finally:
        over.set()
        thread.join()


def followed(
    run: Local, track: Track, sheet: Sequence[Position], clock: rules.Clock, begun_s: float, progress: Progress
) -> tuple[list[Graded], list[float], str]:
    """The versions that were examined, the last one's losses, and why the run ended before its target.

    At its target it plays on until the next version, so that games tell of the one that counts, as a rule.
    """
    rows, losses, due_s, reached = list[Graded](), list[float](), 0.0, False
    try:
        while True:
            over = not run.alive
            weights = max((run.folder / RUN / "weights").glob("*.safetensors"), key=weight_version, default=None)
            version = weight_version(weights) if weights else 0
            if weights and not reached and version > (rows[-1].version if rows else 1) and (over or time.monotonic() >= due_s):
                began_s, seconds = time.monotonic(), weights.stat().st_mtime - begun_s
                losses = examine(track, weights, sheet, OWN)
                due_s = time.monotonic() + (time.monotonic() - began_s) * (1 / EXAM_SHARE - 1)
                cpu_s, loss = round(rules.at(clock, seconds), 2), round(float(np.mean(losses)), 6)
                rows.append(Graded(version, describe(weights).step, round(seconds, 2), cpu_s, loss))
                progress(f"version {version}, {rows[-1].cpu_s:,.0f} CPU-seconds: {loss:.4g}")
                reached = loss <= track.target
            if over or (reached and version > rows[-1].version):
                return rows, losses, "" if reached else f"it was not at {track.target:g} within {track.minutes:g} minutes"
            for _ in run.statuses(LOOK_S):
                pass
    except EvaluationTimeout as error:
        return rows, losses, str(error).partition("; see")[0]


def digests(folder: Path) -> dict[str, str]:
    """The sha256 of all files of a folder, by their names in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Unsound(AzqError):
    """What does not hold of a seed."""


def verify(folder: Path, tracks: SpeedrunRules, seed: int, games: int, progress: Progress) -> tuple[list[Finding], dict[str, Any]]:
    """Judges each seed by itself, then all together: what was checked, and the claim in plain values.

    Raises `ConfigError` for a folder without an entry, `EngineError` where its weights cannot be examined here, and as `sheet_of`.
    """
    entry, rng = read(SpeedrunEntry, folder / rules.ENTRY), random.Random(seed)
    track, kind = tracks.places(entry)
    if why := missing(track):
        raise EngineError(why)
    sheets = sheet_of(track), sheet_of(track, 1 + seed)
    findings, costs = list[Finding](), list[float]()
    for place in sorted(folder.glob("seed-*"), key=lambda path: (len(path.name), path.name)):
        try:
            log = read(SeedLog, place / LOG)
            weights = checked(place, log, entry, track, kind)
            plies = replayed(place / RUN, log.rows[-1].version, rng, games, progress)
            losses = examined(log, weights, track, sheets, 1 + seed)
            costs.append(getattr(log.rows[-1], kind.measure))
            findings.append(Finding(place.name, "ok", f"{kind.measure} {costs[-1]:,.1f}; {plies} plies replay; {losses}"))
        except AzqError as error:
            findings.append(Finding(place.name, "fail", str(error)))
        progress(str(findings[-1]))
    names = [finding.rule for finding in findings]
    if names != [f"seed-{number}" for number in range(1, max(rules.LEAST_SEEDS, len(names)) + 1)]:
        there = ", ".join(names) or "none"
        findings.append(
            Finding("seeds", "fail", f"{rules.LEAST_SEEDS} or more from seed-1 on make an entry, none left out; there are {there}")
        )
    holds = all(finding.severity == "ok" for finding in findings)
    record, chance, words = rules.judgement(costs, entry, rules.shipped()) if holds else (False, None, "")
    findings += [Finding("record", "ok" if record else "warn", words)] if holds else []
    return findings, {"holds": holds, "record": record, "p": chance, "costs": costs, "findings": [at.values() for at in findings]}


def checked(place: Path, log: SeedLog, entry: SpeedrunEntry, track: Track, kind: rules.MachineClass) -> Path:
    """The weights that a seed claims. Raises `Unsound` for what its log, its files or its settings contradict."""
    if why := rules.fault(log, track, kind):
        raise Unsound(why)
    if place.name != f"seed-{log.seed}" or log.entry != entry:
        raise Unsound(f"its log is of seed {log.seed} of {log.entry.new!r} by {log.entry.author}")
    if (files := digests(place / RUN)) != log.files:
        names = (name for name in sorted(files.keys() | log.files.keys()) if files.get(name) != log.files.get(name))
        raise Unsound(f"{next(names)} is not the file that its log names")
    row, run = log.rows[-1], RunDir(place, RUN)
    meta = describe(weights := weights_file(run, str(row.version)))
    if (meta.game, meta.params, meta.step) != (track.game, track.params, row.step):
        raise Unsound(f"its weights are of {meta.game} {meta.params}, step {meta.step}, which is not what it claims")
    ran = run.values()
    for section, values in merge(preset(track.game, entry.preset), {**entry.settings, "run": {"seed": log.seed}}).items():
        for name, value in values.items():
            if (there := ran.get(section, {}).get(name, value)) != value:
                raise Unsound(f"it ran with {section}.{name} = {there}, and its entry has {value}")
    return weights


def replayed(run: Path, version: int, rng: random.Random, games: int, progress: Progress) -> int:
    """How many plies of drawn games, and of the last up to a version, are as recorded. Raises `Unsound`, `NotFound`.

    A version that the next one followed at once searched no game.
    """
    there = list[tuple[int, int]]()  # the newest version and the number of each game
    for event in SegmentReader(run / "segments").last(MOST_GAMES):
        searched = np.frombuffer(event.record.weight_versions, "<u4")[np.frombuffer(event.record.simulations, "<u2") > 0]
        there += [(int(searched.max()), event.record.uid)] if len(searched) else []
    if not there:
        raise Unsound("it has no games")
    last = sorted(game for game in there if game[0] <= version)[-1:]
    replays = sorted({uid for _, uid in (*last, *rng.sample(there, min(games, len(there))))})
    config, counts = load(overrides=[f'home="{run.parent.absolute()}"']), Counter[str]()
    for uid in replays:
        counts.update(replay_game(config, run.name, uid, None, progress)["counts"])
    if counts[DIFFERS] > MOST_DIFFERING * counts.total():
        raise Unsound(f"games replay otherwise: {counts[DIFFERS]} of {counts.total()} plies of {', '.join(map(str, replays))}")
    return counts.total()


def examined(log: SeedLog, weights: Path, track: Track, sheets: Sequence[Sequence[Position]], seed: int) -> str:
    """What its weights lose on its own sheet and on a fresh one, in words. Raises `Unsound` where that is not what it claims."""
    (own, fresh), claim = sheets, f"{log.rows[-1].loss:.4g}"
    again = examine(track, weights, own, OWN) if own else log.losses
    gap = Mean.of(np.subtract(again, log.losses))
    if 2 * chance_above(abs(gap.value), gap.error) < rules.ALPHA:
        what = "better" if gap.value < 0 else "worse"
        raise Unsound(f"its weights lose {np.mean(again):.4g} on its own sheet, {what} than the {claim} it claims")
    there, here = Mean.of(np.array(log.losses)), Mean.of(np.array(examine(track, weights, fresh, seed)))
    if chance_above(here.value - there.value, float(np.hypot(here.error, there.error))) < rules.ALPHA:
        raise Unsound(f"its weights lose {here.value:.4g} on a fresh sheet, worse than the {claim} it claims")
    return f"loss {claim}, {here.value:.4g} on a fresh sheet"
