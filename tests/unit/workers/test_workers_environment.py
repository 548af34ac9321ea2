"""What a worker's child, in which games in Python run, keeps of the environment."""

from __future__ import annotations

import os

import pytest
import structlog
from celery import signals

from azq.config import BrokerConfig, Config
from workers.worker import build_app


def test_a_pool_child_keeps_no_setting_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_BROKER__CONTROL_URL", "redis://:planted@127.0.0.1:1/0")
    monkeypatch.setenv("AZQ_DAEMON", '{"token": "planted-token"}')
    app = build_app(Config(broker=BrokerConfig(control_url="redis://127.0.0.1:1/0")))  # nobody is asked
    try:
        signals.worker_process_init.send(app)
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    assert not any("planted" in value for value in os.environ.values())
