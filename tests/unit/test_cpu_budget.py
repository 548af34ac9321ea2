"""What the end of pytest's output says of CPU time."""

from __future__ import annotations

from cpu_budget import MARGIN, over_budget


def test_cases_and_files_over_their_budget_are_named_dearest_first_with_all_their_parts():
    dear, many = "tests/unit/a/test_dear.py", "tests/unit/b/test_many.py"
    parts = [(f"{dear}::one", 1.5), (f"{dear}::one", 0.6), (f"{dear}::two", 2.0), *((f"{many}::t[{number}]", 1.1) for number in range(10))]
    assert over_budget(parts, MARGIN) == []
    assert over_budget([*parts, ("tests/integration/test_long.py::one", 99.0)]) == [f"  11.0 s  {many}", f"   2.1 s  {dear}::one"]
