"""The Celery app of this machine's settings, for `celery -A workers.app` and Flower; `azq worker` builds the same."""

from __future__ import annotations

from azq.config import load
from workers.worker import build_app

app = build_app(load())
