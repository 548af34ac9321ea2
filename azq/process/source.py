"""Which source this azq was made from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import azq


def commit() -> str:
    """The source's commit, with `+` where files differ from it; empty outside a checkout, where AZQ_COMMIT may name it."""
    folder = Path(azq.__file__).parent
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return os.environ.get("AZQ_COMMIT", "")
    return answer.stdout.strip() or os.environ.get("AZQ_COMMIT", "")
