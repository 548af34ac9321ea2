"""Weights & Biases and MLflow as they are: a run offline, a learner that starts anew and goes on with it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from azq.config import TrackingConfig
from azq.learner.tracking.opening import open_trackers
from azq.learner.tracking.tracker import TrackedRun
from azq.wire.messages import WeightEvent

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of libraries whose warnings are not ours
EVENT = WeightEvent("r", 3, "ab" * 32, "file:x", 40, 1)


def run_twice(name: Literal["wandb", "mlflow"], folder: Path) -> None:
    """A learner, and one after it that went back to an earlier step."""
    run = TrackedRun("r", 17, folder, {"run": {"game": "tic_tac_toe"}, "learner": {"batch_size": 8}})
    for steps in ((10, 40), (30, 50)):
        trackers = open_trackers(TrackingConfig(backends=(name,)), run)
        for step in steps:
            trackers.scalars({"loss/policy": 1.0 / step, "arena/score_uct_100": 0.5, "phase/wall_forward": 0.25}, step)
        trackers.published(EVENT, lambda: b"weights")
        trackers.close()


def test_wandb_offline_has_curves_settings_and_weights(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_twice("wandb", tmp_path)
    records = sorted((tmp_path / "wandb" / "wandb").glob("offline-run-*/run-r-17.wandb"))
    assert records
    written = b"".join(path.read_bytes() for path in records)
    for part in (b"loss/policy", b"arena/score_uct_100", b"phase/wall_forward", b"batch_size", b"tic_tac_toe", b"version-3", b"r-weights"):
        assert part in written, part


def test_mlflow_has_one_run_with_curves_settings_and_weights(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run_twice("mlflow", tmp_path)
    client = mlflow.MlflowClient()
    (experiment,) = client.search_experiments(filter_string="name = 'azq'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["learner.batch_size"] == "8"
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss/policy")] == [10, 40, 30, 50]
    assert {file.path for file in client.list_artifacts(run.info.run_id)} == {"settings.json", "weights"}
    (version,) = client.list_artifacts(run.info.run_id, "weights")
    (weights,) = client.list_artifacts(run.info.run_id, version.path)
    assert Path(client.download_artifacts(run.info.run_id, weights.path, str(tmp_path))).read_bytes() == b"weights"
