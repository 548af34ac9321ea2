"""A disk whose last moments a power cut may take: real files of one folder, and what of them was synced.

A power cut loses writes that no fsync of their file followed, all or some, whole or torn, and names that no fsync of the folder followed.
Damage turns a byte over in what was durable, until it is repaired.
While it is installed it takes the place of functions of `os`; files elsewhere are none of its business.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

from azq.parts.sim.world import Actor, World
from azq.replay.framing import MARK_BYTES, is_marked

Change: TypeAlias = tuple[int, bytes | None]  # place and bytes of a write, or size and None of a cut

CALL_S = 0.0005  # of the disk, mean
FILE_CALLS = ("open", "close", "write", "ftruncate", "fsync", "replace", "unlink")


def after(durable: bytes, changes: Iterable[Change]) -> bytes:
    """A file's bytes once it was changed; zeros lie where nothing was written."""
    data = bytearray(durable)
    for place, written in changes:
        data.extend(bytes(max(0, place - len(data))))
        end = len(data) if written is None else place + len(written)
        data[place:end] = written or b""
    return bytes(data)


@dataclass(eq=False)
class Inode:
    """A file: what is durable, and what was done since."""

    durable: bytes = b""
    pending: list[Change] = field(default_factory=list)
    size: int = 0

    def cut(self, size: int) -> None:
        """Makes it so long."""
        if size != self.size:
            self.pending.append((size, None))
            self.size = size

    def left(self, rng: random.Random) -> Iterator[Change]:
        """The changes that a power cut leaves."""
        for place, written in self.pending:
            if rng.random() < 0.5:
                continue
            is_torn = written is not None and rng.random() < 0.5
            yield place, written[: rng.randint(0, len(written))] if written and is_torn else written


def in_place_of_os(disk: object, *more: str) -> AbstractContextManager[Any]:
    """Lets a disk's `_open` and so on do what functions of `os` do with files, and what `more` of these do."""
    calls: AbstractContextManager[Any] = patch.multiple(os, **{name: getattr(disk, f"_{name}") for name in (*FILE_CALLS, *more)})
    return calls


class SimulatedDisk:
    """One folder without folders in it, and the processes that have its files open."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.full = False
        self._names: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        self._files: dict[int, tuple[Inode | None, Actor]] = {}  # that are open; None: the folder
        self._damaged: list[tuple[Inode, int]] = []
        self._os: SimpleNamespace  # functions in whose place it is

    def installed(self) -> AbstractContextManager[Any]:
        """Sees what is done to its folder."""
        self._os = SimpleNamespace(**vars(os))  # some functions may be those of a disk installed before
        return in_place_of_os(self)

    def power_cut(self) -> None:
        """Leaves what is durable, and some of what is not. Who had files open is dead by now."""
        rng = self.world.rng
        names = {name: inode for name, inode in self._durable.items() if name in self._names or rng.random() < 0.5}
        names |= {name: inode for name, inode in self._names.items() if name not in names and rng.random() < 0.5}
        for name in self._names:
            self._os.unlink(self.folder / name)
        self._names, self._durable = dict(names), dict(names)
        for name, inode in names.items():
            inode.durable, inode.pending = after(inode.durable, inode.left(rng)), []
            inode.size = len(inode.durable)
            (self.folder / name).write_bytes(inode.durable)

    def damage(self, share: float) -> None:
        """Turns a byte over in the newest segment, this share of the way to the last mark that is durable."""
        inode = self._names.get(max((name for name in self._names if name.endswith(".seg")), default=""), Inode())
        ends = (end for end in range(len(inode.durable), MARK_BYTES, -1) if is_marked(inode.durable, end))
        if end := next(ends, 0):
            self._damaged.append((inode, int(share * (end - MARK_BYTES))))
            self._turn_over(*self._damaged[-1])

    def repair(self) -> None:
        """Puts files back as they were, from a copy."""
        while self._damaged:
            self._turn_over(*self._damaged.pop())

    def _turn_over(self, inode: Inode, place: int) -> None:
        path = next((self.folder / name for name, there in self._names.items() if there is inode), None)
        if path is None or place >= len(inode.durable):
            return
        turned = [(place, bytes([inode.durable[place] ^ 0xFF]))]
        inode.durable = after(inode.durable, turned)
        path.write_bytes(after(path.read_bytes(), turned))

    def _inside(self, path: Any) -> str | None:
        """A path's name in the folder; "" for the folder itself."""
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if text == str(self.folder):
            return ""
        parent, name = os.path.split(text)
        return name if parent == str(self.folder) else None

    def _wait(self, what: str) -> None:
        self.world.note(what)
        self.world.pause(self.world.rng.expovariate(1.0) * CALL_S)

    def _abandon(self, file: int, actor: Actor) -> None:
        if self._files.get(file, (None, None))[1] is actor:
            os.close(file)

    # -- in the place of functions of `os`

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        file: int = self._os.open(path, flags, *rest, **more)
        if (name := self._inside(path)) is not None:
            inode = self._names.setdefault(name, Inode()) if name else None
            if inode and flags & os.O_TRUNC:
                inode.cut(0)
            actor = self.world.current
            self._files[file] = inode, actor
            actor.at_exit.append(lambda: self._abandon(file, actor))
        return file

    def _close(self, file: int) -> None:
        self._files.pop(file, None)
        self._os.close(file)

    def _write(self, file: int, data: Any) -> int:
        inode = self._files.get(file, (None, None))[0]
        if inode is None:
            return int(self._os.write(file, data))
        self._wait("write")
        taken = bytes(data)
        if self.full:
            taken = taken[: self.world.rng.randint(0, len(taken) - 1)]
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = int(self._os.write(file, taken))
        inode.pending.append((inode.size, taken[:written]))
        inode.size += written
        return written

    def _ftruncate(self, file: int, size: int) -> None:
        inode = self._files.get(file, (None, None))[0]
        if inode and self.world.current:  # of a dead one nothing has an effect
            inode.cut(size)
        self._os.ftruncate(file, size)

    def _fsync(self, file: int) -> None:
        if file not in self._files:
            self._os.fsync(file)
            return
        self._wait("fsync")
        if inode := self._files[file][0]:
            inode.durable, inode.pending = after(inode.durable, inode.pending), []
        else:
            self._durable = dict(self._names)

    def _replace(self, source: Any, target: Any) -> None:
        before, name = self._inside(source), self._inside(target)
        if before and self.world.current:
            self._wait("rename")
        self._os.replace(source, target)
        if before and name:
            self._names[name] = self._names.pop(before)

    def _unlink(self, path: Any, **more: Any) -> None:
        name = self._inside(path)
        if name and self.world.current:
            self._wait("unlink")
        self._os.unlink(path, **more)
        if name:
            self._names.pop(name, None)
