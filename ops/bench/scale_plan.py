"""The plan for a fleet beyond these machines as a table, from `azq.parts.cluster.arithmetic`.

ops/bench/scale_plan.py [FIGURES.toml] [--write-docs docs/scale.md]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from azq.parts.cluster.arithmetic import plan, read_figures

BEGIN, END = "<!-- scale plan: begin -->", "<!-- scale plan: end -->"


def table(figures: Mapping[str, float], sources: Mapping[str, str]) -> str:
    """The plan as Markdown, and under it the measured figures that went in."""
    lines = ["| step | how | result |", "|---|---|---|"]
    lines += [f"| {step.what} | {step.how} | {shown(step.value)} {step.unit}".rstrip() + " |" for step in plan(figures)]
    lines += ["", "| measured | value | where |", "|---|---|---|"]
    lines += [f"| {name} | {shown(figures[name])} | {source} |" for name, source in sources.items()]
    return "\n".join(lines)


def shown(value: float) -> str:
    """A number as people read it: three digits, or whole above a thousand."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def with_table(text: str, made: str) -> str:
    """A page with the part between the marks replaced. Raises `ValueError` where it has none."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{head}{BEGIN}\n{made}\n{END}{tail}"


def main() -> None:
    """Prints the table, or puts it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="?", type=Path)
    parser.add_argument("--write-docs", type=Path)
    asked: Any = parser.parse_args()
    figures, sources = read_figures(asked.figures)
    made = table(figures, sources)
    if asked.write_docs:
        asked.write_docs.write_text(with_table(asked.write_docs.read_text("utf-8"), made), "utf-8")
    else:
        sys.stdout.write(made + "\n")


if __name__ == "__main__":
    main()
