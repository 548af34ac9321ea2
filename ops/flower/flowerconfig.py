"""Flower's settings, without the password: `FLOWER_BASIC_AUTH=user:password` in the environment or, under systemd, a credential."""

import os
from pathlib import Path
from typing import Any

from flower.views import BaseHandler

from workers.app import app

address = "127.0.0.1"
read_only = True
enable_events = False  # azq's workers send them without being asked
port = 5555
persistent = True
state_save_interval = 5000  # ms
max_tasks = 20_000
task_runtime_metric_buckets = [1.0, 10.0, 60.0, 300.0, 900.0, float("inf")]  # seconds

# Flower takes no jobs, so it gives none back to the queues either: to its user at the broker they are there to be read.
app.conf.broker_transport_options = app.conf.broker_transport_options | {"visibility_timeout": 10**9}

_live_queues = BaseHandler.get_active_queue_names


def _every_queue(page: BaseHandler) -> list[str]:
    """Queues of workers that answered, and of the tasks that were seen: also those of tags that came after Flower's start."""
    page.application.update_workers()
    tasks = page.application.events.state.tasks.values()
    return sorted({*_live_queues(page), *(task.routing_key for task in tasks if task.routing_key)})


BaseHandler.get_active_queue_names = _every_queue

_broker = BaseHandler.get_broker


def _broker_by_its_user(page: BaseHandler) -> Any:
    """Flower's connection for lengths of queues, as the user that the address names: over a socket it leaves that out."""
    broker = _broker(page)
    broker.redis.connection_pool.connection_kwargs["username"] = broker.username
    return broker


BaseHandler.get_broker = _broker_by_its_user

_credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "")) / "flower.env"
if _credential.is_file():
    basic_auth = [line.partition("=")[2] for line in _credential.read_text("utf-8").splitlines() if line.startswith("FLOWER_BASIC_AUTH=")]

# Flower has this file go before `FLOWER_PORT` and all other variables, which are what an operator says last.
for _said in [name for name in globals() if f"FLOWER_{name.upper()}" in os.environ]:
    del globals()[_said]
