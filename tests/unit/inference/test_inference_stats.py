"""What an inference worker tells of its runs."""

from __future__ import annotations

import time

import pytest

from azq.inference.serve.stats import Stats


def test_what_each_run_had_is_told_apart_and_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stats = Stats()
    for run, leaves in (("r", 10), ("r", 30), ("s", 7)):
        stats.batch(run, leaves, 0.5)
    now = 104.0
    assert stats.by_run() == {"r": (10.0, 20.0, 0.25), "s": (1.75, 7.0, 0.125)}
    for second in range(105, 130):
        now = float(second)
        stats.batch("s", 7, 0.5)
        told = stats.by_run()
    assert told == {"s": (7.0, 7.0, 0.5)}
