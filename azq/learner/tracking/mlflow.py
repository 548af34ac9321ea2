"""MLflow. Its own settings are in the environment: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, and what its servers ask for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunStatus

from azq.clock import now_ms
from azq.learner.tracking.tracker import Fetch, TrackedRun
from azq.wire.messages import WeightEvent

ID_TAG = "azq.run"
PARAMS_PER_CALL = 100  # the service's limits
PARAM_LENGTH = 6000


class MlflowTracker:
    """A run of the experiment `azq`; a learner that starts anew goes on with it."""

    def __init__(self, run: TrackedRun) -> None:
        self._client = MlflowClient()
        self._run = self._started_before(run) or self._begin(run)
        self._client.log_dict(self._run, dict(run.settings), "settings.json")

    def _started_before(self, run: TrackedRun) -> str | None:
        found = self._client.search_runs([self._experiment()], f"tags.`{ID_TAG}` = '{run.id}'", max_results=1)
        if not found:
            return None
        known = str(found[0].info.run_id)
        self._client.update_run(known, RunStatus.to_string(RunStatus.RUNNING))
        return known

    def _begin(self, run: TrackedRun) -> str:
        begun = str(self._client.create_run(self._experiment(), run_name=run.name, tags={ID_TAG: run.id, "game": run.game}).info.run_id)
        params = [Param(name, text[:PARAM_LENGTH]) for name, text in flattened(run.settings)]
        for start in range(0, len(params), PARAMS_PER_CALL):
            self._client.log_batch(begun, params=params[start : start + PARAMS_PER_CALL])
        return begun

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "azq")
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known else self._client.create_experiment(name))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        at_ms = now_ms()
        self._client.log_batch(self._run, metrics=[Metric(tag, value, at_ms, step) for tag, value in values.items()])

    def published(self, event: WeightEvent, fetch: Fetch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{event.sha256}.safetensors")
            path.write_bytes(fetch())
            self._client.log_artifact(self._run, str(path), f"weights/version-{event.version}")

    def flush(self) -> None: ...  # every call is answered

    def close(self) -> None:
        self._client.set_terminated(self._run)


def flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings as `section.key` and text. Pure."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
