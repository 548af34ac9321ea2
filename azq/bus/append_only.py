"""The end of an append-only file after a power cut: unwritten zeros.

A journalling file system may keep a file's new length and not what was written there, and reads zeros in its place. A command ends in
a line break, so zeros at the end belong to no whole command: without them the server goes on with all that is whole before.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from azq import logs
from azq.errors import BrokerUnavailable
from azq.files import sync_folder

CHUNK_BYTES = 1 << 20
_APPENDED = re.compile(r"^file (\S+) seq (\d+) type i\b", re.MULTILINE)  # a line of Redis 7's manifest

log = logs.get(__name__)


def cut_zeros(folder: Path) -> None:
    """Cuts zeros off the end of the append-only file in a broker's folder, whose server does not run; keeps a copy of what there was.

    Raises `BrokerUnavailable` where the disk has no room for the copy.
    """
    path = appended_file(folder)
    if path is None or not (zeros := zeros_at_end(path)):
        return
    size = path.stat().st_size
    remainder = folder / f"{path.name}.{size}-bytes-before-cut"
    try:
        shutil.copyfile(path, remainder)
        with remainder.open("rb") as copy:
            os.fsync(copy.fileno())
        sync_folder(folder)
        with path.open("r+b") as file:
            file.truncate(size - zeros)
            os.fsync(file.fileno())
    except OSError as error:
        raise BrokerUnavailable(f"{path} ends in {zeros} zeros; they are cut once {remainder} can be written: {error.strerror}") from None
    log.warning("append_only_file_cut", file=str(path), zeros=zeros, copy=str(remainder), reason="a power cut leaves zeros at its end")


def appended_file(folder: Path) -> Path | None:
    """The file that a server appended to last; None where there is none."""
    manifests = sorted(folder.glob("appendonlydir/*.manifest"))
    if not manifests:
        single = folder / "appendonly.aof"
        return single if single.is_file() else None
    appended = _APPENDED.findall(manifests[0].read_text("utf-8", "replace"))
    path = manifests[0].parent / max(appended, key=lambda match: int(match[1]))[0] if appended else None
    return path if path is not None and path.is_file() else None


def zeros_at_end(path: Path) -> int:
    """How many bytes of zero a file ends in."""
    with path.open("rb") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - CHUNK_BYTES)
            file.seek(start)
            if remainder := file.read(end - start).rstrip(b"\0"):
                return size - start - len(remainder)
            end = start
    return size


if __name__ == "__main__":  # before a server that systemd starts itself
    cut_zeros(Path(sys.argv[1]))
