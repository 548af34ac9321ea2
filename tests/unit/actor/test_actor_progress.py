"""Rates of slices."""

from __future__ import annotations

import threading

import pytest

from azq import _core, metrics
from azq.actor.progress import SEARCH_COUNTERS, Meter, Progress


def test_a_meter_goes_on_over_slices() -> None:
    meter = Meter()
    meter.begin()
    meter.rates(Progress(games=4, evaluations=400, requests=4))
    meter.begin()
    threading.Event().wait(0.05)  # rates of moments are all noise
    rates = meter.rates(Progress(games=1, evaluations=100, requests=1))
    assert rates[metrics.MEAN_BATCH] == pytest.approx(100, rel=0.05)
    assert rates[metrics.GAMES_PER_S] * 100 == pytest.approx(rates[metrics.EVALUATIONS_PER_S], rel=0.05)


def test_the_core_has_every_counter_of_the_searches() -> None:
    assert {"simulations", "plies", "cache_hits"} <= set(SEARCH_COUNTERS)
    assert [name for name in SEARCH_COUNTERS if not hasattr(_core.Search, name)] == []
