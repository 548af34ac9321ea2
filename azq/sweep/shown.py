"""A study beside a daemon that shows it on its dashboard."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from pathlib import Path

import optuna

from azq.client import Client
from azq.config import Config
from azq.console.remote import client_of
from azq.errors import RequestError
from azq.sweep.plan import StudyPlan
from azq.sweep.report import as_values
from azq.sweep.sweep import Tell, sweep
from azq.sweep.trial import Trial

SHOWN_EVERY_S = 5.0


def swept(plan: StudyPlan, folder: Path, config: Config, url: str, tell: Tell) -> optuna.Study:
    """Runs what is left of a study, which the daemon at `url`, where one is named, shows; raises as `sweep`."""
    if not url:
        return sweep(plan, folder, tell, partial(Trial, plan, folder))
    with contextlib.closing(client_of(config, url)) as client:
        return sweep(plan, folder, tell, partial(Trial, plan, folder), Shown(plan, client, tell).show)


class Shown:
    """Tells a daemon of the study, every few seconds at most; one that is away or refuses is named once. Safe to share."""

    def __init__(self, plan: StudyPlan, client: Client, tell: Tell) -> None:
        self._plan = plan
        self._client = client
        self._tell = tell
        self._due_s = 0.0
        self._failed = False
        self._lock = threading.Lock()

    def show(self, study: optuna.Study, now: bool) -> None:
        with self._lock:
            if time.monotonic() < self._due_s and not now:
                return
            self._due_s = time.monotonic() + SHOWN_EVERY_S
            try:
                self._client.tell_study(as_values(self._plan, study))
                self._failed = False
            except RequestError as error:
                if not self._failed:
                    self._tell(f"the dashboard does not show the study: {error}")
                self._failed = True
