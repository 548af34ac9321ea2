"""Which source this azq was made from."""

from __future__ import annotations

import hashlib
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


def files_sha256() -> str:
    """Of all that azq computes with, names and bytes: its Python files and its compiled core."""
    folder, answer = Path(azq.__file__).parent, hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".so", ".toml")):
        answer.update(f"{path.relative_to(folder)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return answer.hexdigest()
