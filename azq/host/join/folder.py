"""The folder of a machine's work: who has it, how its processes are, what they said last."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from azq.errors import StateConflict
from azq.files import locked, make_folders

LOCK, WORKING = "member.lock", "working.json"  # who works here, and how each of its processes is
LAST_LINES = 4


@contextlib.contextmanager
def holding(folder: Path) -> Iterator[None]:
    """The folder for this process alone, until its last process is gone. Raises `StateConflict` where another works there."""
    make_folders(folder)
    with locked(folder / LOCK, lambda pid: f"process {pid} works in {folder}; stop it, or name another --folder"):
        (folder / WORKING).unlink(missing_ok=True)
        yield


def worker_of(folder: Path) -> int:
    """The process that works in a folder; 0 where none does."""
    file = folder / LOCK
    if not file.exists():
        return 0
    try:
        with locked(file, str):
            return 0
    except StateConflict as held:
        return int(str(held)) if str(held).isdigit() else 0


def last_lines(path: Path, count: int = LAST_LINES) -> str:
    """The end of a log."""
    return " | ".join(line for line in text_of(path).strip().splitlines()[-count:] if line)


def text_of(path: Path) -> str:
    """A file's text; empty where there is none."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
