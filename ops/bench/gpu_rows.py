"""Prints the rows of docs/benchmarks.md's "GPUs" that results.json of gpu_first.py fills.

Usage: gpu_rows.py RESULTS.json [--write-docs docs/benchmarks.md]    rows without figures stay as they are
"""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Figures = Mapping[str, list[dict[str, Any]]]  # by step
SECTION = "\n## GPUs\n"


def last(figures: Figures, step: str, key: str) -> Any:
    """A step's newest value under a key; raises `KeyError` where it has none."""
    for row in reversed(figures.get(step, [])):
        if row.get(key) is not None:
            return row[key]
    raise KeyError(f"{step} has no {key}")


def rates(figures: Figures) -> dict[str, float]:
    """Evaluations per second of each way that was measured, the faster of two tries."""
    rows = sorted((row for row in figures.get("networks", []) if "evaluations_per_s" in row), key=lambda row: row["evaluations_per_s"])
    return {row["way"]: row["evaluations_per_s"] for row in rows}


def bare(figures: Figures) -> float:
    return float(max([*rates(figures).values(), last(figures, "stream", "bare_evaluations_per_s")]))


def network(figures: Figures) -> str:
    each = ", ".join(f"{way} {rate / 1e6:.2f}" for way, rate in rates(figures).items())
    return f"{bare(figures) / 1e6:.2f} M evaluations/s ({each})"


def stream(figures: Figures) -> str:
    rate = last(figures, "stream", "stream_evaluations_per_s")
    return f"{rate / bare(figures):.3f}; {rate / 1e6:.2f} M evaluations/s"


def selfplay(figures: Figures) -> str:
    rate, games = (last(figures, "selfplay-200", key) for key in ("evaluations_per_s", "games_per_s"))
    return f"{rate / bare(figures):.3f}; {games:.0f} games/s"


def against_pgx(figures: Figures) -> str:
    ours = [last(figures, f"selfplay-{count}", "simulations_per_s") for count in (200, 32)]
    theirs = [row["simulations_per_s"] for row in figures.get("pgx", [])]
    if len(theirs) < len(ours):
        raise KeyError("pgx was not measured at both budgets")
    return ", ".join(f"{mine / other:.2f}x" for mine, other in zip(ours, theirs, strict=True))


def busy(figures: Figures) -> str:
    mean, cores, share = (last(figures, "selfplay-200", key) for key in ("inference_mean_batch", "cpu_cores", "gpu_busy"))
    return f"{mean / last(figures, 'stream', 'batch'):.2f}; {share:.0%}; {cores:.1f}"


def learner(figures: Figures) -> str:
    first_s, rate, share = (last(figures, "learner", key) for key in ("first_steps_s", "samples_per_s", "share_of_bare"))
    return f"{share:.3f}; {rate:,} samples/s, first step {first_s[0]:.1f} s"


def up(figures: Figures) -> str:
    ledger, seconds = last(figures, "up", "ledger"), last(figures, "up", "active_s")
    return f"{ledger['finished'] / seconds:.1f}; {'balanced' if ledger['balanced'] else 'NOT balanced'}"


def strength(figures: Figures) -> str:
    """Seconds to the first version at or below so many errors, or how few there were."""
    (seed,) = last(figures, "strength", "seeds")
    rows = seed["rows"]
    least = f"not within {rows[-1]['seconds']:.0f} s ({100 * min(row['loss'] for row in rows):.1f} %)" if rows else "not measured"
    reached = [next((f"{row['seconds']:.0f} s" for row in rows if row["loss"] <= goal), least) for goal in (0.04, 0.01)]
    return "; ".join(reached)


#: how a row of the page begins -> what was measured
ROWS: dict[str, Callable[[Figures], str]] = {
    "bare network, 5x128": network,
    "stream / bare network": stream,
    "self-play / bare network": selfplay,
    "the same / pgx + mctx": against_pgx,
    "mean batch / bucket; GPU busy": busy,
    "learner / bare loop, 5x128": learner,
    "a minute of `azq up": up,
    "connect four to <= 4 %": strength,
}


def filled(page: str, figures: Figures) -> tuple[str, list[str]]:
    """The page with the rows of its section that have figures, and these rows. Pure."""
    head, mark, after = page.partition(SECTION)
    section, end, tail = after.partition("\n## ")
    lines, made = section.split("\n"), list[str]()
    for number, line in enumerate(lines):
        for told in (ROWS[name] for name in ROWS if line.startswith(f"| {name}")):
            with contextlib.suppress(KeyError):  # no figures yet
                before, what, goal, _, *rest = line.split("|")
                lines[number] = "|".join([before, what, goal, f" {told(figures)} ", *rest])
                made.append(lines[number])
    return head + mark + "\n".join(lines) + end + tail, made


def main() -> None:
    """Prints the rows, and puts them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--write-docs", type=Path)
    given = parser.parse_args()
    figures = {name: entry["figures"] for name, entry in json.loads(given.results.read_text())["steps"].items()}
    page = given.write_docs or Path(__file__).parents[2] / "docs" / "benchmarks.md"
    text, rows = filled(page.read_text("utf-8"), figures)
    print("\n".join(rows))
    if given.write_docs:
        given.write_docs.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
