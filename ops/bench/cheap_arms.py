"""Many short runs of several settings, compared seed by seed: which ingredient learns more from a CPU-second.

Usage: cheap_arms.py OUT_FOLDER --arms ARMS.toml [--only NAME ...] [--seeds N] [--table]
Each run of an arm and a seed is `turns.py`'s, in this process, and a file in the folder once it is over: the same command goes on where the
last one was stopped. Seeds come in turn, all arms of one before the next, and an arm that cannot be better than the first one any more is
left out of the rounds that follow. An arm that diverges, or whose settings are none, is named, and the table goes on. `--table` prints what
there is.

ARMS.toml: `game`, `cpu_s` (of an arm; graded at each of `at`), `seeds`, `num_simulations`, `positions` (a file; those shipped by default),
`count` of them, `set` and `[[arm]]` with `name` and `set`. With `games = FILE` all arms learn from the same games, those that another run
left by `keep = FILE`, and play none: for ingredients of the learner alone, which differ by far less than two runs' games do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from turns import FIGURES, TurnsRun, graded

from azq.arena.positions import Position, choose, load, read
from azq.config import RunSections, merge, parse_overrides, parse_run
from azq.errors import AzqError, ConfigError
from azq.files import publish_file
from azq.presets import preset
from azq.wire.messages import SampleEvent

#: over the preset: small and short, and none of what arms put in
CHEAP: dict[str, dict[str, Any]] = {
    "search": {"num_simulations": 32, "schedule": []},
    "selfplay": {"games_in_flight": 128, "cache_entries": 131_072, "fork_share": 0.0},
    "network": {"blocks": 3, "channels": 32},
    "learner": {
        "batch_size": 256,
        "min_window": 1_024,
        "max_window": 200_000,
        "publish_every_s": 0.5,
        "ema_decay": 0.99,
        "samples_per_insert": 3.0,
        "learning_rate": 2e-3,
        "muon_rate": 0.0,
        "lr_drops": [],
        "lr_schedule": [],
        "device": "cpu",
        "threads": 1,
    },
}
#: Student's t, one-sided 95 %, by degrees of freedom from 1
STUDENT = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83)
FEWEST = 3  # seeds before an arm is given up


@dataclass(frozen=True, slots=True)
class CheapArm:
    """Settings to be compared."""

    name: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a file of arms says."""

    game: str
    arms: tuple[CheapArm, ...]
    at: tuple[float, ...]  # CPU-seconds at which runs are graded, the last one their end
    seeds: int
    num_simulations: int  # of the search that is graded
    positions: str
    count: int
    games: str  # that all arms learn from; empty: each plays its own
    keep: str  # where the first run leaves its games


def read_plan(path: Path) -> Plan:
    """Raises `ConfigError` for a file that is no plan."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
        common = tuple(values.get("set", ()))
        arms = tuple(CheapArm(one["name"], (*common, *one.get("set", ()))) for one in values["arm"])
        end = float(values["cpu_s"])
        at = tuple(float(each) for each in values.get("at", (end,)))
        files = {name: str(path.parent / values[name]) if values.get(name) else "" for name in ("positions", "games", "keep")}
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} is no table of arms: {error!r}; it has cpu_s and [[arm]] with a name each") from None
    if len({arm.name for arm in arms}) < len(arms) or at != tuple(sorted(at)) or at[-1] != end:
        raise ConfigError(f"{path}: arms have names of their own, and `at` grows up to cpu_s = {end:g}")
    return Plan(
        values.get("game", "connect_four"),
        arms,
        at,
        int(values.get("seeds", 3)),
        int(values.get("num_simulations", 64)),
        files["positions"],
        int(values.get("count", 0)),
        files["games"],
        files["keep"],
    )


def sections_of(plan: Plan, arm: CheapArm, seed: int) -> RunSections:
    """An arm's settings; raises `ConfigError` where they are none."""
    cheap = merge(merge(preset(plan.game), CHEAP), {"run": {"seed": seed}})
    return parse_run(merge(cheap, parse_overrides(arm.overrides)), f"arm {arm.name}")


def fingerprint(plan: Plan, sections: RunSections) -> str:
    """Of all that a run's figures follow from, but for the code."""
    told = [sections.model_dump(mode="json", exclude_defaults=True), plan.at, plan.num_simulations, plan.positions, plan.count, plan.games]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def run_one(plan: Plan, sections: RunSections, positions: Sequence[Position]) -> list[dict[str, Any]]:
    """A row for each point of a run, the last one with the regret of each position; raises `AzqError` where it diverges."""
    run = TurnsRun(sections)
    if plan.games:
        run.teach(msgspec.msgpack.decode(Path(plan.games).read_bytes(), type=list[SampleEvent]))
    rows: list[dict[str, Any]] = []
    for end in plan.at:
        counts = run.go(end)
        lost = run.losses(positions, plan.num_simulations)
        rows.append({**msgspec.to_builtins(counts), **{name: float(np.mean(each)) for name, each in lost.items()}})
    rows[-1]["each"] = [round(float(one), 4) for one in lost[FIGURES[0]]]
    if plan.keep and not Path(plan.keep).exists():
        publish_file(Path(plan.keep), msgspec.msgpack.encode(run.kept))
    return rows


def student(degrees: int) -> float:
    """The quantile that a mean of few differences is held against."""
    return STUDENT[min(degrees, len(STUDENT)) - 1]


def paired(base: Mapping[int, float], arm: Mapping[int, float]) -> tuple[float, float, int]:
    """Mean difference of an arm from the first over the seeds of both, its standard error (infinite for one), and their number. Pure."""
    differences = [arm[seed] - base[seed] for seed in sorted(set(base) & set(arm))]
    if not differences:
        return 0.0, math.inf, 0
    mean = sum(differences) / len(differences)
    if len(differences) == 1:
        return mean, math.inf, 1
    variance = sum((one - mean) ** 2 for one in differences) / (len(differences) - 1)
    return mean, math.sqrt(variance / len(differences)), len(differences)


def error_of_positions(base: Sequence[float], arm: Sequence[float]) -> float:
    """The standard error of two runs' mean difference that is due to the choice of positions. Pure."""
    differences = np.subtract(arm, base)
    return float(differences.std(ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf


def hopeless(base: Mapping[int, float], arm: Mapping[int, float]) -> bool:
    """Whether an arm is worse than the first for sure enough, or always fails, so that more seeds are for others. Pure."""
    mean, error, seeds = paired(base, arm)
    return seeds >= FEWEST and mean - student(seeds - 1) * error > 0.0


def last_of(results: Sequence[Mapping[str, Any]], arm: str, figure: str) -> dict[int, Any]:
    """A figure at the end of an arm's runs, by seed; those that failed have none. Pure."""
    mine = [(result["seed"], result["rows"][-1]) for result in results if result["arm"] == arm and result["rows"]]
    return {seed: row[figure] for seed, row in mine if figure in row}


def table(plan: Plan, results: Sequence[Mapping[str, Any]]) -> str:
    """Arms in Markdown: means over seeds, and paired differences from the first arm with their standard errors. Pure."""
    names = (
        "arm",
        "seeds",
        "+- by positions",
        *(f"{figure}, against the first" for figure in FIGURES),
        "games",
        "steps",
        "samples",
        "failed",
    )
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for arm in plan.arms:
        mine = [result for result in results if result["arm"] == arm.name]
        ended = [result["rows"][-1] for result in mine if result["rows"]]
        each, base = last_of(results, arm.name, "each"), last_of(results, plan.arms[0].name, "each")
        errors = [error_of_positions(base[seed], each[seed]) for seed in sorted(set(each) & set(base))]
        cells = [arm.name, str(len(ended)), f"{np.mean(errors):.4f}" if errors and arm is not plan.arms[0] else ""]
        for figure in FIGURES:
            found = last_of(results, arm.name, figure)
            mean, error, _ = paired(last_of(results, plan.arms[0].name, figure), found)
            against = "" if arm is plan.arms[0] or not found else f", {mean:+.4f} +-{error:.4f}"
            cells.append(f"{np.mean(list(found.values())):.4f}{against}" if found else "-")
        cells += [f"{np.mean([row[name] for row in ended]):,.0f}" if ended else "-" for name in ("games", "steps", "samples")]
        cells.append("; ".join(dict.fromkeys(result["failed"] for result in mine if result["failed"])))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def known(plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """What earlier commands finished; raises `ConfigError` for a file of other settings."""
    found = []
    for arm in plan.arms:
        for path in sorted(folder.glob(f"{arm.name}.*.json")):
            result = json.loads(path.read_text("utf-8"))
            if result["fingerprint"] and result["fingerprint"] != fingerprint(plan, sections_of(plan, arm, result["seed"])):
                raise ConfigError(f"{path} was made with other settings; remove it, or give another folder")
            found.append(result)
    return found


def rounds(plan: Plan, folder: Path, positions: Sequence[Position], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All runs that are not there yet, seed after seed; each is on disk when it is over."""
    results = known(plan, folder)
    done = {(result["arm"], result["seed"]) for result in results}
    for seed in range(1, plan.seeds + 1):
        for arm in plan.arms:
            if (arm.name, seed) in done:
                continue
            first, mine = (last_of(results, name, FIGURES[0]) for name in (plan.arms[0].name, arm.name))
            if arm is not plan.arms[0] and hopeless(first, mine):
                say(f"{arm.name} seed {seed}: left out, it cannot win any more")
                continue
            result = _measured(plan, arm, seed, positions)
            publish_file(folder / f"{arm.name}.{seed}.json", json.dumps(result, indent=1).encode())
            results.append(result)
            say(_line(result))
    return results


def _measured(plan: Plan, arm: CheapArm, seed: int, positions: Sequence[Position]) -> dict[str, Any]:
    told: dict[str, Any] = {"arm": arm.name, "seed": seed, "set": list(arm.overrides), "fingerprint": "", "rows": [], "failed": ""}
    try:
        sections = sections_of(plan, arm, seed)
        told["fingerprint"] = fingerprint(plan, sections)
        told["rows"] = run_one(plan, sections, positions)
    except AzqError as error:
        told["failed"] = str(error)
    return told


def _line(result: Mapping[str, Any]) -> str:
    if not result["rows"]:
        return f"{result['arm']} seed {result['seed']}: {result['failed']}"
    last = result["rows"][-1]
    return f"{result['arm']} seed {result['seed']}: " + ", ".join(f"{name} {last[name]:.4f}" for name in FIGURES)


def positions_of(plan: Plan) -> list[Position]:
    """What runs are graded on; raises `ConfigError` for a set that is not of the plan's game."""
    from azq import games

    found = graded(games.load(plan.game), read(Path(plan.positions)) if plan.positions else load(plan.game))
    return choose(found, plan.count, seed=0) if plan.count else found


def main() -> int:
    """Measures what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arms", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    try:
        plan = read_plan(given.arms)
        arms = tuple(arm for arm in plan.arms if not given.only or arm.name in given.only)
        plan = replace(plan, arms=arms, seeds=given.seeds or plan.seeds)
        given.out.mkdir(parents=True, exist_ok=True)
        if given.table:
            results = known(plan, given.out)
        else:
            results = rounds(plan, given.out, positions_of(plan), lambda line: print(line, file=sys.stderr, flush=True))
    except AzqError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(plan, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
