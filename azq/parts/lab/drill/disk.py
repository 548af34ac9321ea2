"""A small disk for a drill: a file system in memory that a process and its children alone see; needs root and `mount`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from azq.errors import MissingExtra

SIZE = "192m"
CHUNKS = (1 << 20, 4096)  # bytes; a page is the least that is given out
FILLER = "filler"
_CLONE_NEWNS = 0x20000


def no_disk() -> str:
    """Why there can be none here; empty where there can."""
    if os.geteuid() != 0:
        return "a mount needs root"
    try:
        done = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "the program unshare is not installed (util-linux)"
    return "" if done.returncode == 0 else f"the kernel refuses a mount: {done.stderr.strip()}"


@contextlib.contextmanager
def small_disk(folder: Path, size: str = SIZE) -> Iterator[None]:
    """An empty folder is a disk for the length of a block, and has its files afterwards. Raises `MissingExtra` where there can be none."""
    if reason := no_disk():
        raise MissingExtra(f"no disk can be made here: {reason}")
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        aside = folder.with_name(f"{folder.name}-files")
        _run("cp", "-a", str(folder), str(aside))
        _run("umount", "--lazy", str(folder))
        aside.rename(folder)


def fill(folder: Path) -> None:
    """Leaves its disk no page; to be called again, as what is deleted gives room."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        for size in CHUNKS:
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
