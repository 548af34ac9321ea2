"""What a run's processes logged as JSON."""

from __future__ import annotations

import json
from pathlib import Path


def events(folder: Path, role: str, name: str) -> list[dict[str, object]]:
    """The lines of one event in the log of a role, below a run's folder."""
    lines = (folder / "logs" / f"{role}.log").read_text("utf-8", "replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and f'"event": "{name}"' in line]
