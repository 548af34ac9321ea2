"""Rates of slices."""

from __future__ import annotations

import threading

import pytest

from azq import metrics
from azq.actor.progress import Meter, Progress


def test_a_meter_goes_on_over_slices() -> None:
    meter = Meter()
    meter.begin()
    meter.rates(Progress(games=4, evaluations=400, requests=4))
    meter.begin()
    threading.Event().wait(0.05)  # rates of moments are all noise
    rates = meter.rates(Progress(games=1, evaluations=100, requests=1))
    assert rates[metrics.MEAN_BATCH] == pytest.approx(100, rel=0.05)
    assert rates[metrics.GAMES_PER_S] * 100 == pytest.approx(rates[metrics.EVALUATIONS_PER_S], rel=0.05)
