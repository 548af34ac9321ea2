"""Two sides of a run with round figures."""

from __future__ import annotations

from azq.parts.lab.calibrate.rates import SampleReuse, Side, TwoSides

REUSE = SampleReuse(samples_per_insert=4.0, batch_size=512)  # a step for each 128 samples


def sides(selfplay_per_s: float = 1000.0, steps_per_s: float = 100.0, cores: int = 64, one_device: bool = False) -> TwoSides:
    return TwoSides(cores, Side(selfplay_per_s, 0.001), Side(steps_per_s, 0.1), 30.0, 40.0, 20.0, 500.0, one_device)
