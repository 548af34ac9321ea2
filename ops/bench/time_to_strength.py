"""From nothing to a target error on graded positions: wall clock with everything included, from the start of `azq up`.

Usage: time_to_strength.py OUT.json [--target 0.04] [--num-simulations 400] [--minutes 30] [--preset NAME] [--config RECIPE.toml]
           [--set section.key=value ...]                        one recipe; stops at the target
       time_to_strength.py OUT.json --arms ARMS.toml [--only NAME ...]   several recipes one after another, each to its horizon
Writes the figures as JSON, and the curves beside them as PNG. A version counts from the moment it was published; what grading costs in
the run is in `cpu_s.grader`. With --arms, or --to-the-end, versions are graded afterwards, at no cost to the run.
Ctrl-C ends the run in hand in order and writes what there is, a second one aborts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strength_arm import Arm, Exam, run_arm

from azq.arena.positions import choose, load, read
from azq.arena.rating import Z95
from azq.process.interrupts import Aborted, Interrupts

LAST = 4  # versions of an arm that are compared with another's
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def read_arms(path: Path, only: Sequence[str] = ()) -> tuple[dict[str, Any], list[Arm]]:
    """What all arms have in common, and the arms; SystemExit names what does not fit."""
    values = tomllib.loads(path.read_text("utf-8"))
    common = {key: value for key, value in values.items() if key != "arm"}
    arms = [
        Arm(
            name=one["name"],
            game=common.get("game", "connect_four"),
            preset=one.get("preset", common.get("preset", "")),
            config=str(path.parent / one["config"]) if "config" in one else "",
            overrides=(*common.get("set", ()), *one.get("set", ())),
            minutes=float(one.get("minutes", common.get("minutes", 5.0))),
        )
        for one in values.get("arm", [])
        if not only or one["name"] in only
    ]
    if unknown := set(only) - {arm.name for arm in arms}:
        raise SystemExit(f"{path} has no arm {', '.join(sorted(unknown))}")
    if not arms:
        raise SystemExit(f"{path} has no [[arm]]")
    return common, arms


def paired(first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], count: int) -> tuple[float, float]:
    """How much less often the second gets the same positions wrong: the difference of the shares and half its 95 % interval.

    For each of an arm's versions the indices of the wrong positions; each position counts with the share of the versions that got
    it wrong, which takes the noise of one version out. The interval is that of the positions, not of another run's luck. Pure.
    """
    shares = (
        [sum(index in wrong for wrong in map(set, versions)) / len(versions) for index in range(count)] for versions in (first, second)
    )
    differences = [after - before for before, after in zip(*shares, strict=True)]
    mean = sum(differences) / count
    variance = sum((difference - mean) ** 2 for difference in differences) / count
    return mean, Z95 * math.sqrt(variance / count)


def table(results: Sequence[dict[str, Any]], target: float) -> str:
    """The arms side by side, in Markdown; errors against the first arm are paired position by position."""
    head = ["arm", f"s to {target:.1%}", "errors at the end (95 %)", f"mean of the last {LAST}", "against the first"]
    head += ["regret of search, policy; value's squared error", "games", "samples", "evaluations", "CPU-s"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for result in results:
        rows, base = result["rows"][-LAST:], results[0]["rows"][-LAST:]
        cells = [
            result["arm"],
            "-" if result["reached_s"] is None else f"{result['reached_s']:.0f}",
            f"{rows[-1]['error_share']:.1%} ({rows[-1]['low']:.1%} to {rows[-1]['high']:.1%})" if rows else "-",
            f"{sum(row['error_share'] for row in rows) / len(rows):.1%}" if rows else "-",
            _against(base, rows) if rows and base and result is not results[0] else "",
            ", ".join(f"{value:.3f}" for value in rows[-1].get("regret", {}).values()) if rows else "-",
            f"{result['games']:,}",
            f"{result['samples']:,}",
            f"{result['evaluations']:,}",
            f"{result['cpu_s']['all']:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _against(base: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    difference, half = paired([row["wrong"] for row in base], [row["wrong"] for row in rows], rows[-1]["positions"])
    return f"{100 * difference:+.1f} +-{100 * half:.1f} points"


def draw(results: Sequence[dict[str, Any]], out: Path, target: float, title: str) -> None:
    """A curve for each arm, its 95 % intervals shaded."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (axes, below) = pyplot.subplots(2, figsize=(8, 6.2), dpi=120, sharex=True, height_ratios=(3, 2))
    for number, result in enumerate(results):
        minutes = [row["seconds"] / 60 for row in result["rows"]]
        colour = COLOURS[number % len(COLOURS)]
        for name, style in (("policy", "--"), ("search", "-")):
            known = [(row["seconds"] / 60, row["regret"][name]) for row in result["rows"] if row.get("regret")]
            whose = f"of the {name}" if number == 0 else None
            below.plot([at for at, _ in known], [value for _, value in known], marker=".", color=colour, linestyle=style, label=whose)
        axes.plot(minutes, [100 * row["error_share"] for row in result["rows"]], marker=".", color=colour, label=result["arm"])
        low, high = ([100 * row[key] for row in result["rows"]] for key in ("low", "high"))
        axes.fill_between(minutes, low, high, color=colour, alpha=0.1, linewidth=0)
    axes.axhline(100 * target, color="#888888", linestyle=":", linewidth=1.2, label=f"target {target:.1%}")
    axes.set(ylabel="moves that lose a result class, %", title=title, ylim=(0, None))
    below.set(xlabel="minutes since the start of azq up", ylabel="expected loss of a move", ylim=(0, None))
    below.legend(loc="upper right")
    axes.grid(alpha=0.25)
    below.grid(alpha=0.25)
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(out)
    pyplot.close(figure)


def say(text: str) -> None:
    """Progress, beside the table on standard output."""
    print(text, file=sys.stderr, flush=True)


def own_cpu_s() -> float:
    """CPU-seconds of this process: imports, grading, drawing."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(arms: Sequence[Arm], exam: Exam, folder: Path, out: Path, title: str) -> list[dict[str, Any]]:
    """All arms in turn; what is known is on disk after each."""
    results: list[dict[str, Any]] = []
    with Interrupts() as interrupts:
        for number, arm in enumerate(arms):
            say(f"{arm.name}: {arm.minutes:g} minutes {' '.join(arm.overrides)}")
            before = own_cpu_s()
            try:
                result = run_arm(
                    arm, folder / f"{number}-{arm.name}", exam, interrupts, lambda text: print(text, file=sys.stderr, flush=True)
                )
            except Aborted:
                break
            result["cpu_s"]["grader"] = round(own_cpu_s() - before, 1)
            results.append({**result, "settings": list(arm.overrides), "minutes": arm.minutes})
            write(results, exam, out, title)
            if interrupts.count:
                break
    return results


def write(results: Sequence[dict[str, Any]], exam: Exam, out: Path, title: str) -> None:
    """JSON and PNG."""
    body = {
        "title": title,
        "target": exam.target,
        "num_simulations": exam.num_simulations,
        "positions": len(exam.positions),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "arms": list(results),
    }
    out.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
    draw([result for result in results if result["rows"]], out.with_suffix(".png"), exam.target, title)


def parse() -> argparse.Namespace:
    """The arguments; those of the arms file come first where it has them and the command line does not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--game", default="connect_four")
    parser.add_argument("--target", type=float)
    parser.add_argument("--num-simulations", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--preset", default="")
    parser.add_argument("--config", default="")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--arms", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--to-the-end", action="store_true", help="train to the horizon whatever is reached, and grade afterwards")
    parser.add_argument("--every-s", type=float, default=60.0, help="seconds between two gradings in the run, each of which costs it some")
    parser.add_argument("--points", type=int, default=12, help="versions graded afterwards")
    parser.add_argument("--positions", type=Path, help="JSON lines of graded positions; those of the game by default")
    parser.add_argument("--count", type=int, default=0, help="of the positions, so many at most, in equal shares of the classes")
    parser.add_argument("--grade-device", default="auto")
    parser.add_argument("--keep", type=Path, help="folder for the runs; a temporary one by default")
    parser.add_argument("--title", default="")
    return parser.parse_args()


def main() -> None:
    """Reads the arguments, measures, prints the table."""
    given = parse()
    common: dict[str, Any] = {}
    arms = [Arm("recipe", given.game, given.preset, given.config, tuple(given.overrides), given.minutes or 30.0)]
    if given.arms:
        common, arms = read_arms(given.arms, given.only)
        if given.minutes:
            arms = [Arm(arm.name, arm.game, arm.preset, arm.config, arm.overrides, given.minutes) for arm in arms]
    positions = read(given.positions) if given.positions else load(arms[0].game)
    positions = choose(positions, given.count, seed=0) if given.count else positions
    exam = Exam(
        positions=positions,
        num_simulations=given.num_simulations or common.get("num_simulations", 400),
        target=given.target if given.target is not None else common.get("target", 0.04),
        every_s=given.every_s,
        points=given.points,
        to_the_end=given.to_the_end or bool(given.arms),
        device=given.grade_device,
    )
    title = given.title or f"{arms[0].game}, {exam.num_simulations} simulations, {len(positions)} solved positions"
    with tempfile.TemporaryDirectory(prefix="azq-strength-") as scratch:
        results = measure(arms, exam, given.keep or Path(scratch), given.out, title)
    print(table(results, exam.target) if results else "nothing was measured")


if __name__ == "__main__":
    main()
