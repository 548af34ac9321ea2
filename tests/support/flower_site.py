"""Flower on a free port, as its unit starts it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from waiting import PATIENCE_S

from azq.host.fronts import free_port
from azq.process import apart

USER, PASSWORD = "ops", "s3cret-of-ops"
OF_CHECKOUT = Path(__file__).parents[2] / "ops" / "flower" / "flowerconfig.py"


@contextlib.contextmanager
def flower(control_url: str, folder: Path, python: str = sys.executable, config: Path = OF_CHECKOUT) -> Iterator[str]:
    """Its address; it writes `flower.log` and its database into the folder."""
    port = free_port()
    command = [python, "-P", "-m", "celery", "-A", "workers.app", "flower", f"--conf={config}", f"--db={folder / 'flower.db'}"]
    settings = {"AZQ_BROKER__CONTROL_URL": control_url, "FLOWER_BASIC_AUTH": f"{USER}:{PASSWORD}", "FLOWER_PORT": str(port)}
    process = apart.start(command, folder, folder / "flower.log", settings)
    try:
        yield f"http://127.0.0.1:{port}"
        process.terminate()
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
