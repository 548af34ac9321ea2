"""Writes that are on disk when they return."""

from __future__ import annotations

import os
from pathlib import Path


def write_all(file: int, data: bytes) -> None:
    """Writes all bytes to a descriptor: a single write may take only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def cut(path: Path, size: int) -> None:
    """Truncates a file, durably."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(file, size)
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(directory: Path) -> None:
    """Makes names created, renamed or removed in a folder durable."""
    folder = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def publish_file(path: Path, data: bytes) -> None:
    """Writes a file that appears under its name only when it is whole and durable; raises `OSError` and leaves no trace otherwise."""
    temporary = path.with_suffix(".tmp")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
