"""Weights & Biases. Its own settings are in the environment: WANDB_API_KEY, WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline."""

from __future__ import annotations

import os
from collections.abc import Mapping

import wandb

from azq.learner.tracking.tracker import TrackedRun

# What curves are drawn over: a learner that went back to a checkpoint says lower steps again, which the library's own must not be.
STEP = "step"


class WandbTracker:
    """A run of the project `azq`; a learner that starts again goes on with it."""

    def __init__(self, run: TrackedRun) -> None:
        folder = run.directory / "wandb"
        folder.mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "azq"),
            id=run.id,
            name=run.name,
            tags=[run.game],
            config=dict(run.settings),
            resume="allow",
            dir=folder,
            settings=wandb.Settings(silent=True, console="off", save_code=False, disable_git=True),
        )
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({**values, STEP: step})

    def close(self) -> None:
        self._run.finish()
