"""CPU seconds of unit tests, of their process and its ended children: what costs more than its budget stands at the end of pytest's output.

Nothing fails by it: how fast a core is differs by machine.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

CASE_S, FILE_S = 2.0, 10.0


def spent_s() -> float:
    """User and system time so far."""
    return sum(os.times()[:4])


def over_budget(reports: Iterable[tuple[str, float]]) -> list[str]:
    """A line for each unit file or case that is over its budget, the dearest first; of parts of tests, by node id."""
    cases, files = defaultdict[str, float](float), defaultdict[str, float](float)
    for node, seconds in reports:
        if node.startswith("tests/unit/"):
            cases[node] += seconds
            files[node.partition("::")[0]] += seconds
    both = [*((name, s) for name, s in files.items() if s > FILE_S), *((name, s) for name, s in cases.items() if s > CASE_S)]
    return [f"{seconds:6.1f} s  {name}" for name, seconds in sorted(both, key=lambda one: -one[1])]
