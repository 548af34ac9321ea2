"""Files and folders that are on disk when these functions return, and files that one process holds.

A crash may lose whatever was written to a file since its last fsync, in any part and order, and every name made, changed or removed since
its folder's last fsync. So a file is written whole beside its name, and a name counts once its folder is synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from azq.errors import ConfigError, StateConflict, StoreError

LONGEST_SOCKET_PATH = 100  # bytes; Linux takes 107, macOS 103


def write_all(file: int, data: bytes) -> None:
    """Writes all bytes to a descriptor: a single write may take only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def sync_folder(directory: Path) -> None:
    """Makes names created, renamed or removed in a folder durable."""
    folder = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folders(path: Path) -> None:
    """Makes a folder and those above it, durably; also one whose maker died before its name was on disk. Raises `OSError`."""
    if not path.is_dir():
        make_folders(path.parent)
        path.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):  # above what this user may read, somebody else made the folders
        sync_folder(path.parent)


def below(folder: Path, name: str | Path) -> Path:
    """The place of a name in a folder. Raises `StoreError` where it leads out of it, by dots or by a symbolic link."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise StoreError(f"{path} leads out of {folder}, by its name or a symbolic link: nothing is read or written there; remove it")
    return path


def publish_file(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a file that appears under its name only when it is whole and durable, and is unreadable for others before.

    Drafts are `.<name>.*.tmp` beside it; only a process that dies leaves one. Raises `OSError`.
    """
    file, draft = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.absolute().parent)
    try:
        try:
            with _named(path):
                write_all(file, data)
                os.fchmod(file, mode)
                os.fsync(file)
        finally:
            os.close(file)
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    sync_folder(path.parent)


def write_output(path: Path, data: bytes) -> None:
    """Writes the file that a command was given a name for, and makes its folder. Raises `StoreError`."""
    with _as_output(path):
        publish_file(path, data)


def check_output(path: Path) -> None:
    """Raises `StoreError` where `write_output` would, before the work whose result goes there."""
    with _as_output(path), tempfile.TemporaryFile(dir=path.absolute().parent):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


@contextlib.contextmanager
def _as_output(path: Path) -> Iterator[None]:
    try:
        make_folders(path.absolute().parent)
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}; name another file") from None


@contextlib.contextmanager
def locked(path: Path, taken: Callable[[str], str] | None = None) -> Iterator[None]:
    """Holds a file for this process, whose id it then keeps; a process that dies holds it no longer.

    Where another does: raises `StateConflict` with what `taken` makes of that one's id, or waits without it. Raises `OSError`.
    """
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if taken else 0))
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StateConflict(taken(holder) if taken else holder) from None
        with _named(path):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of a descriptor name its file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def socket_folder(directory: Path, longest: str) -> Path:
    """Where sockets of a folder lie: there, or where a path with the `longest` name is too long for the kernel, among temporary files.

    Raises `ConfigError` where that is too long, too.
    """
    short = Path(tempfile.gettempdir()) / f"azq-{os.getuid()}-{path_digest(directory)}"
    for folder in (directory, short):
        if len(os.fsencode(folder / longest)) <= LONGEST_SOCKET_PATH:
            return folder
    raise ConfigError(f"no path short enough for a socket, neither {directory} nor {short}; set a shorter home folder or TMPDIR")


def private_folder(folder: Path) -> None:
    """Makes a folder that this user alone may enter. Raises `ConfigError` for another user's."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise ConfigError(f"{folder} belongs to another user; set a home folder with a shorter path, or TMPDIR")


def path_digest(path: Path) -> str:
    """Sixteen digits that stand for a path."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
