"""CPU seconds of unit tests, of their process and its ended children: what costs more than its budget stands at the end of pytest's output.

How many seconds the same work takes differs by machine and by what else runs there: a run fails at `MARGIN` times the budget.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

CASE_S, FILE_S, MARGIN = 2.0, 10.0, 3.0


def spent_s() -> float:
    """User and system time so far."""
    return sum(os.times()[:4])


def over_budget(reports: Iterable[tuple[str, float]], times: float = 1.0) -> list[str]:
    """A line for each unit file or case over so many times its budget, the dearest first; of parts of tests, by node id."""
    cases, files = defaultdict[str, float](float), defaultdict[str, float](float)
    for node, seconds in reports:
        if node.startswith("tests/unit/"):
            cases[node] += seconds
            files[node.partition("::")[0]] += seconds
    both = [(name, s) for costs, most_s in ((files, FILE_S), (cases, CASE_S)) for name, s in costs.items() if s > times * most_s]
    return [f"{seconds:6.1f} s  {name}" for name, seconds in sorted(both, key=lambda one: -one[1])]
