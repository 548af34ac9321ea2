"""Flower's settings, without the password: `FLOWER_BASIC_AUTH=user:password` in the environment or, under systemd, a credential."""

import os
from pathlib import Path

address = "127.0.0.1"
port = 5555
persistent = True
state_save_interval = 5000  # ms
max_tasks = 20_000
task_runtime_metric_buckets = [1.0, 10.0, 60.0, 300.0, 900.0, float("inf")]  # seconds

_credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", "")) / "flower.env"
if _credential.is_file():
    basic_auth = [line.partition("=")[2] for line in _credential.read_text("utf-8").splitlines() if line.startswith("FLOWER_BASIC_AUTH=")]

# Flower has this file go before `FLOWER_PORT` and all other variables, which are what an operator says last.
for _said in [name for name in globals() if f"FLOWER_{name.upper()}" in os.environ]:
    del globals()[_said]
