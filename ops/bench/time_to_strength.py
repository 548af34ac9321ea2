"""From nothing to a target error on graded positions: wall clock with everything included, from the start of `azq up`.

Usage: time_to_strength.py OUT.json [--target 0.04] [--num-simulations 400] [--minutes 30] [--preset NAME] [--config RECIPE.toml]
           [--set section.key=value ...]                        stops at the target
Writes the figures as JSON after each grade, and the curve beside them as PNG where matplotlib is. A version counts from the moment it was
published; what grading costs in the run is in `cpu_s.grader`. Ctrl-C ends the run in order and writes what there is, a second one aborts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.arena.player import MAX_SLOTS
from azq.arena.regret import judged
from azq.config import load as load_config
from azq.console.move import weight_version
from azq.console.play import Seating, seated
from azq.errors import ExitCode
from azq.process import apart
from azq.process.interrupts import Aborted, Interrupts
from azq.process.proc import children, command, cpu_s, tree_cpu_s
from azq.process.start import AZQ
from azq.ratings.positions import Position, choose, load, read
from azq.stats import wilson

RUN = "strength"
REGRETS = ("search", "policy", "value_error")  # of `azq.arena.regret.Regret`
LOOK_S = 0.5
DRAIN_S = 120.0  # games go back, the learner drains and checkpoints; after so long everything is killed
ROLES = {"daemon": "daemon", "inference": "inference", "learner": "learner", "worker": "worker"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What `azq up` is started with."""

    game: str = "connect_four"
    preset: str = ""
    config: str = ""  # a TOML file; empty: the preset alone
    overrides: tuple[str, ...] = ()
    minutes: float = 30.0  # the run's horizon


@dataclass(frozen=True, slots=True)
class Exam:
    """How versions are graded: at most every `every_s` seconds until one is at `target`."""

    positions: Sequence[Position]
    num_simulations: int
    target: float
    every_s: float
    device: str = "auto"


@dataclass(slots=True)
class Cost:
    """CPU-seconds by role. A process that ended keeps its last reading."""

    by_pid: dict[int, tuple[str, float]] = field(default_factory=dict)

    def read(self, up: int) -> None:
        """Reads the counters of `azq up` (its own share is the role `up`) and whatever it started."""
        self._keep(up, "up", cpu_s([up]))
        for child in children(up):
            self._keep(child, role_of(command(child)), tree_cpu_s(child))

    def by_role(self) -> dict[str, float]:
        """Sums over the processes of each role."""
        roles = sorted({role for role, _ in self.by_pid.values()})
        return {role: round(sum(seconds for name, seconds in self.by_pid.values() if name == role), 1) for role in roles}

    def _keep(self, pid: int, role: str, seconds: float) -> None:
        before = self.by_pid.get(pid, (role, 0.0))
        if seconds >= before[1]:  # a process that just ended reads as 0
            self.by_pid[pid] = (before[0] if role == "other" else role, seconds)


def role_of(words: Sequence[str]) -> str:
    """The role of a process by its command line: selfplay, eval, learner, inference, daemon, broker or other. Pure."""
    if not words:
        return "other"
    if any(server in words[0] for server in ("redis-server", "valkey-server")):  # it writes its socket behind its name
        return "broker"
    role = next((ROLES[word] for word in words[1:] if word in ROLES), "other")
    return next((word.partition(".")[0] for word in words if word.startswith(("selfplay.", "eval."))), role)


def reached(rows: Sequence[dict[str, Any]], target: float) -> float | None:
    """Seconds to the publication of the first graded version at or below the target; None where none was. Pure."""
    return next((row["seconds"] for row in rows if row["error_share"] <= target), None)


def grade_weights(folder: Path, weights: Path, recipe: Recipe, exam: Exam, begun: float) -> dict[str, Any]:
    """One row of the curve: when these weights were published, seconds after the start, and which positions they get wrong."""
    config = load_config(overrides=[f'home="{folder.parent}"', "inference.threads=1", f'inference.device="{exam.device}"'])
    seating = Seating(recipe.game, folder.name, str(weights), exam.num_simulations, slots=MAX_SLOTS)
    with seated(config, seating, ["latest"]) as (game, (player,)):
        marks, regret = judged(game, player, exam.positions)
    wrong = [index for index, mark in enumerate(marks) if mark.loses_class]
    low, high = wilson(len(wrong), len(exam.positions))
    return {
        "seconds": round(weights.stat().st_mtime - begun, 1),
        "version": weight_version(weights),
        "errors": len(wrong),
        "positions": len(exam.positions),
        "error_share": round(len(wrong) / len(exam.positions), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        # which moves on with every weight, where errors jump from move to move
        "regret": {name: round(float(getattr(regret, name).mean()), 4) for name in REGRETS} if regret else {},
        "wrong": wrong,
    }


def run_recipe(recipe: Recipe, home: Path, exam: Exam, interrupts: Interrupts, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Trains until the target or the horizon, whichever comes first, and ends all it started; `keep` gets what is known on the way."""
    home.mkdir(parents=True, exist_ok=True)
    begun, monotonic, rows = time.time(), time.monotonic(), list[dict[str, Any]]()
    log, cost = home / "up.log", Cost()

    def figures() -> dict[str, Any]:
        spent = {**cost.by_role(), "all": round(sum(cost.by_role().values()), 1), "grader": round(own_cpu_s(), 1)}
        wall_s = round(time.monotonic() - monotonic, 1)
        return {"reached_s": reached(rows, exam.target), "wall_s": wall_s, **counted(home), "cpu_s": spent, "rows": rows}

    with log.open("wb") as errors, (home / "up.json").open("wb") as lines:
        up = subprocess.Popen(up_command(recipe), env=environment(home), cwd=home, stdout=lines, stderr=errors, start_new_session=True)
        try:
            for row in _watch(up, recipe, home / RUN, exam, cost, interrupts, begun):
                rows.append(row)
                keep(figures())
            wall_s = round(time.monotonic() - monotonic, 1)
        finally:
            code = end(up, cost, interrupts)
    if code and not interrupts.count:
        say(f"azq up ended with code {code}; see {log}")
    return {**figures(), "wall_s": wall_s, "exit_code": code, "interrupted": bool(interrupts.count)}


def up_command(recipe: Recipe) -> list[str]:
    """The command of a recipe; the dashboard takes any free port."""
    words = [*AZQ, "up", "--game", recipe.game, "--run", RUN, "--json", "--until", f"minutes={recipe.minutes:g}"]
    words += ["--preset", recipe.preset] if recipe.preset else []
    words += ["--config", str(Path(recipe.config).absolute())] if recipe.config else []
    return [*words, *(word for text in ("daemon.port=0", *recipe.overrides) for word in ("--set", text))]


def environment(home: Path) -> dict[str, str]:
    """What is no setting of what is live here, and the run's home; log lines become JSON, which `counted` reads."""
    return {**apart.environment(), "AZQ_HOME": str(home), "AZQ_LOG": "json"}


def newest(folder: Path) -> Path | None:
    """The weights that the run published last; those of before the first step do not count."""
    return next(iter(sorted((folder / "weights").glob("*.safetensors"), key=weight_version)[1:][::-1]), None)


def counted(home: Path) -> dict[str, Any]:
    """What the run did: games, samples and steps by its last summary, self-play's evaluations by the slices it logged."""
    summaries = [json.loads(line) for line in (home / "up.json").read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    last = summaries[-1] if summaries else {}
    selfplay = home / RUN / "logs" / "selfplay.log"
    lines = selfplay.read_text("utf-8", "replace").splitlines() if selfplay.is_file() else []
    return {
        "games": last.get("ledger", {}).get("finished", 0),
        "samples": last.get("samples", 0),
        "steps": last.get("learner_step", 0),
        "versions": last.get("weight_version", 0),
        "evaluations": sum(json.loads(line).get("evaluations", 0) for line in lines if '"slice_over"' in line),
    }


def end(up: subprocess.Popen[bytes], cost: Cost, interrupts: Interrupts) -> int:
    """Drains `azq up`, kills it where that takes too long or the second Ctrl-C came, and returns its exit code."""
    deadline = time.monotonic() + DRAIN_S
    if up.poll() is None:
        up.send_signal(signal.SIGINT)
    while up.poll() is None and time.monotonic() < deadline and interrupts.count < 2:
        cost.read(up.pid)
        try:
            up.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    if up.poll() is None:
        os.killpg(up.pid, signal.SIGKILL)  # its children ask the kernel to end with it
    return up.wait()


def _watch(
    up: subprocess.Popen[bytes], recipe: Recipe, folder: Path, exam: Exam, cost: Cost, interrupts: Interrupts, begun: float
) -> Iterator[dict[str, Any]]:
    """Looks after the run until it is over or good enough; yields a row a graded version, the last one included."""
    graded, due, over = 0, time.monotonic(), False
    while not over and not interrupts.count:
        over = up.poll() is not None
        cost.read(up.pid)
        weights = newest(folder) if over or time.monotonic() >= due else None
        if weights and weight_version(weights) > graded:
            due = time.monotonic() + exam.every_s
            row = grade_weights(folder, weights, recipe, exam, begun)
            share = f"{row['error_share']:6.1%} ({row['low']:.1%} to {row['high']:.1%})"
            say(f"{row['seconds']:7.1f} s  version {row['version']:4d}  {share}  {row.get('regret', '')}")
            graded, over = row["version"], over or row["error_share"] <= exam.target
            yield row
        if not over:
            interrupts.pause(LOOK_S)


def draw(rows: Sequence[dict[str, Any]], out: Path, target: float, title: str) -> None:
    """The share of errors with its 95 % interval."""
    try:
        import matplotlib
    except ImportError:  # the figures are in the JSON
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=120)
    minutes = [row["seconds"] / 60 for row in rows]
    share, low, high = ([100 * row[key] for row in rows] for key in ("error_share", "low", "high"))
    axes.plot(minutes, share, marker=".")
    axes.fill_between(minutes, low, high, alpha=0.1, linewidth=0)
    axes.axhline(100 * target, color="#888888", linestyle=":", linewidth=1.2, label=f"target {target:.1%}")
    axes.set(xlabel="minutes since the start of azq up", ylabel="moves that lose a result class, %", title=title, ylim=(0, None))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(out)
    pyplot.close(figure)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def own_cpu_s() -> float:
    """CPU-seconds of this process: imports, grading, drawing."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--game", default="connect_four")
    parser.add_argument("--target", type=float, default=0.04)
    parser.add_argument("--num-simulations", type=int, default=400)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--preset", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--every-s", type=float, default=60.0, help="seconds between two gradings in the run, each of which costs it some")
    parser.add_argument("--positions", type=Path, help="JSON lines of graded positions; those of the game by default")
    parser.add_argument("--count", type=int, default=0, help="of the positions, so many at most, in equal shares of the classes")
    parser.add_argument("--grade-device", default="auto")
    parser.add_argument("--keep", type=Path, help="folder for the run; a temporary one by default")
    return parser.parse_args()


def main() -> int:
    """Reads the arguments, measures, draws; the exit code is that of `azq up`."""
    given = parse()
    positions = read(given.positions) if given.positions else load(given.game)
    positions = choose(positions, given.count, seed=0) if given.count else positions
    exam = Exam(positions, given.num_simulations, given.target, given.every_s, given.grade_device)
    recipe = Recipe(given.game, given.preset, given.config, tuple(given.overrides), given.minutes)
    title = f"{recipe.game}, {exam.num_simulations} simulations, {len(positions)} solved positions"
    about = {
        "title": title,
        "target": exam.target,
        "num_simulations": exam.num_simulations,
        "positions": len(positions),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "settings": list(recipe.overrides),
        "minutes": recipe.minutes,
    }

    def keep(figures: dict[str, Any]) -> None:
        given.out.write_text(json.dumps({**about, **figures}, indent=1) + "\n", "utf-8")

    try:
        with tempfile.TemporaryDirectory(prefix="azq-strength-") as scratch, Interrupts() as interrupts:
            result = run_recipe(recipe, given.keep or Path(scratch), exam, interrupts, keep)
    except Aborted:
        return ExitCode.INTERRUPTED
    keep(result)
    if result["rows"]:
        draw(result["rows"], given.out.with_suffix(".png"), exam.target, title)
    return 0 if result["exit_code"] == ExitCode.INTERRUPTED else int(result["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
