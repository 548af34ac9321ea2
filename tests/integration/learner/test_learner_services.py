"""Weights & Biases as it is: a run offline, a learner that starts anew and goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from azq.config import TrackingConfig
from azq.learner.tracking.tracker import TrackedRun, open_trackers

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of libraries whose warnings are not ours


def run_twice(folder: Path) -> None:
    """A learner, and one after it that went back to an earlier step."""
    run = TrackedRun("r", 17, folder, {"run": {"game": "tic_tac_toe"}, "learner": {"batch_size": 8}})
    for steps in ((10, 40), (30, 50)):
        trackers = open_trackers(TrackingConfig(backends=("wandb",)), run)
        for step in steps:
            trackers.scalars({"loss/policy": 1.0 / step, "arena/score_uct_100": 0.5, "phase/wall_forward": 0.25}, step)
        trackers.close()


def test_wandb_offline_has_curves_and_settings(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_twice(tmp_path)
    records = sorted((tmp_path / "wandb" / "wandb").glob("offline-run-*/run-r-17.wandb"))
    assert records
    written = b"".join(path.read_bytes() for path in records)
    for part in (b"loss/policy", b"arena/score_uct_100", b"phase/wall_forward", b"batch_size", b"tic_tac_toe"):
        assert part in written, part
