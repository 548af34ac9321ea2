"""One arm of time_to_strength.py: an `azq up` in a fresh folder, its published weights graded, its cost counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.arena.player import MAX_SLOTS
from azq.arena.positions import Position
from azq.arena.regret import judged
from azq.config import load as load_config
from azq.console.move import weight_version
from azq.console.play import Seating, seated
from azq.process import apart
from azq.process.interrupts import Interrupts
from azq.process.proc import children, command, cpu_s, stat_of
from azq.process.python import AZQ
from azq.status.curves import wilson

RUN = "strength"
REGRETS = ("search", "policy", "value_error")  # of `azq.arena.regret.Regret`
LOOK_S = 0.5
DRAIN_S = 120.0  # games go back, the learner drains and checkpoints; after so long everything is killed
ROLES = {"daemon": "daemon", "inference": "inference", "learner": "learner", "worker": "worker"}


@dataclass(frozen=True, slots=True)
class Arm:
    """A recipe to be measured: what `azq up` is started with."""

    name: str
    game: str = "connect_four"
    preset: str = ""
    config: str = ""  # a TOML file; empty: the preset alone
    overrides: tuple[str, ...] = ()
    minutes: float = 30.0  # the run's horizon


@dataclass(frozen=True, slots=True)
class Exam:
    """How versions are graded: in the run at most every `every_s` seconds until `target`, or afterwards at `points` versions."""

    positions: Sequence[Position]
    num_simulations: int
    target: float
    every_s: float
    points: int
    to_the_end: bool
    device: str = "auto"


@dataclass(slots=True)
class Cost:
    """CPU-seconds by role. A process that ended keeps its last reading."""

    by_pid: dict[int, tuple[str, float]] = field(default_factory=dict)

    def read(self, up: int) -> None:
        """Reads /proc for `azq up` (its own share is the role `up`) and whatever it started."""
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


def tree_cpu_s(pid: int) -> float:
    """CPU-seconds of a process and all below it."""
    own = stat_of(pid)
    return (own.cpu_s + own.ended_cpu_s if own else 0.0) + sum(tree_cpu_s(child) for child in children(pid))


def reached(rows: Sequence[dict[str, Any]], target: float) -> float | None:
    """Seconds to the publication of the first graded version at or below the target; None where none was. Pure."""
    return next((row["seconds"] for row in rows if row["error_share"] <= target), None)


def spread(count: int, points: int) -> list[int]:
    """Indices of at most `points` of `count` versions, evenly from the first to the last. Pure."""
    if count <= points:
        return list(range(count))
    return sorted({round((count - 1) * i / max(1, points - 1)) for i in range(points)}) if points > 1 else [count - 1]


def grade_weights(folder: Path, weights: Path, arm: Arm, exam: Exam, begun: float) -> dict[str, Any]:
    """One row of the curve: when these weights were published, seconds after the start, and which positions they get wrong."""
    config = load_config(overrides=[f'home="{folder.parent}"', "inference.threads=1", f'inference.device="{exam.device}"'])
    seating = Seating(arm.game, folder.name, str(weights), exam.num_simulations, slots=MAX_SLOTS)
    with seated(config, seating, ["latest"]) as (game, (player,)):
        marks, regret = judged(game, player, exam.positions)
    wrong = [index for index, mark in enumerate(marks) if mark.loses_class]
    low, high = wilson(len(wrong), len(exam.positions))
    means = {name: round(float(getattr(regret, name).mean()), 4) for name in REGRETS} if regret else {}
    return {
        "seconds": round(weights.stat().st_mtime - begun, 1),
        "version": weight_version(weights),
        "errors": len(wrong),
        "positions": len(exam.positions),
        "error_share": round(len(wrong) / len(exam.positions), 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "regret": means,  # which moves on with every weight, where errors jump from move to move
        "wrong": wrong,
    }


def run_arm(arm: Arm, home: Path, exam: Exam, interrupts: Interrupts, say: Callable[[str], None]) -> dict[str, Any]:
    """Trains until the target or the horizon, whichever comes first, or to the horizon where the exam says so; ends all it started."""
    home.mkdir(parents=True, exist_ok=True)
    begun, monotonic = time.time(), time.monotonic()
    log = home / "up.log"
    with log.open("wb") as errors, (home / "up.json").open("wb") as lines:
        up = subprocess.Popen(up_command(arm), env=environment(home), cwd=home, stdout=lines, stderr=errors, start_new_session=True)
        cost = Cost()
        try:
            rows = list(_watch(up, arm, home / RUN, exam, cost, interrupts, begun, say))
            wall_s = time.monotonic() - monotonic
        finally:
            code = end(up, cost, interrupts)
    if code and not interrupts.count:
        say(f"azq up ended with code {code}; see {log}")
    if exam.to_the_end and not interrupts.count:
        rows = [_told(grade_weights(home / RUN, path, arm, exam, begun), say) for path in chosen(published(home / RUN), exam.points)]
    reached_s = reached(rows, exam.target)
    return {
        "arm": arm.name,
        "reached_s": reached_s,
        "wall_s": round(wall_s, 1),
        "exit_code": code,
        "interrupted": bool(interrupts.count),
        **counted(home),
        "cpu_s": {**cost.by_role(), "all": round(sum(cost.by_role().values()), 1)},
        "rows": rows,
    }


def up_command(arm: Arm) -> list[str]:
    """The command of an arm; the dashboard takes any free port."""
    words = [*AZQ, "up", "--game", arm.game, "--run", RUN, "--json", "--until", f"minutes={arm.minutes:g}"]
    words += ["--preset", arm.preset] if arm.preset else []
    words += ["--config", str(Path(arm.config).absolute())] if arm.config else []
    return [*words, *(word for text in ("daemon.port=0", *arm.overrides) for word in ("--set", text))]


def environment(home: Path) -> dict[str, str]:
    """What is no setting of what is live here, and the arm's home; log lines become JSON, which `counted` reads."""
    return {**apart.environment(), "AZQ_HOME": str(home), "AZQ_LOG": "json"}


def published(folder: Path) -> list[Path]:
    """Weights that the run keeps, the oldest version first, those of before the first step left out."""
    return sorted((folder / "weights").glob("*.safetensors"), key=weight_version)[1:]


def chosen(paths: Sequence[Path], points: int) -> list[Path]:
    """At most `points` of them, evenly."""
    return [paths[index] for index in spread(len(paths), points)]


def counted(home: Path) -> dict[str, Any]:
    """What the run did: games, samples and steps by its last summary, self-play's evaluations by the slices it logged."""
    summaries = [json.loads(line) for line in (home / "up.json").read_text().splitlines() if line.startswith("{")]
    last = summaries[-1] if summaries else {}
    slices = [json.loads(line) for line in _lines(home / RUN / "logs" / "selfplay.log") if '"slice_over"' in line]
    return {
        "games": last.get("ledger", {}).get("finished", 0),
        "samples": last.get("samples", 0),
        "steps": last.get("learner_step", 0),
        "versions": last.get("weight_version", 0),
        "evaluations": sum(one.get("evaluations", 0) for one in slices),
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
    up: subprocess.Popen[bytes],
    arm: Arm,
    folder: Path,
    exam: Exam,
    cost: Cost,
    interrupts: Interrupts,
    begun: float,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Looks after the run until it is over or good enough; yields a row a graded version."""
    graded, due = 0, time.monotonic()
    while up.poll() is None and not interrupts.count:
        cost.read(up.pid)
        newest = published(folder)[-1:] if not exam.to_the_end and time.monotonic() >= due else []
        if newest and weight_version(newest[0]) > graded:
            due = time.monotonic() + exam.every_s
            row = _told(grade_weights(folder, newest[0], arm, exam, begun), say)
            graded = row["version"]
            yield row
            if row["error_share"] <= exam.target:
                return
        interrupts.pause(LOOK_S)
    newest = published(folder)[-1:]
    if not exam.to_the_end and not interrupts.count and newest and weight_version(newest[0]) > graded:
        yield _told(grade_weights(folder, newest[0], arm, exam, begun), say)


def _told(row: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    share = f"{row['error_share']:6.1%} ({row['low']:.1%} to {row['high']:.1%})"
    say(f"{row['seconds']:7.1f} s  version {row['version']:4d}  {share}  {_regret(row)}".rstrip())
    return row


def _regret(row: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {row['regret'][name]:.3f}" for name in row.get("regret", ()))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
