"""`python -m azq.parts.lab.drill.skewed_clock AFTER_S BY_S COMMAND...`: an azq command whose wall clock jumps after so many seconds.

Reads of `time.time` and `time.time_ns` are moved, those of azq, Celery and kombu among them; `datetime.now` and the monotonic clock,
by which all waiting is done, are not.
"""

from __future__ import annotations

import runpy
import sys
import time


def skew(after_s: float, by_s: float) -> None:
    """Moves the wall clock of this process and those it forks."""
    right, right_ns, began_s = time.time, time.time_ns, time.monotonic()

    def moved_s() -> float:
        return by_s if time.monotonic() - began_s >= after_s else 0.0

    time.time = lambda: right() + moved_s()
    time.time_ns = lambda: right_ns() + int(moved_s() * 1e9)


def main() -> None:
    """Skews, then imports and runs azq, so that nobody holds the right clock."""
    after_s, by_s, *command = sys.argv[1:]
    skew(float(after_s), float(by_s))
    sys.argv = ["azq", *command]
    runpy.run_module("azq", run_name="__main__")


if __name__ == "__main__":
    main()
