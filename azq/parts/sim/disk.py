"""A disk whose last moments a power cut may take: real files of one folder, and what of them was synced.

A power cut loses writes that no fsync of their file followed, all or some, whole or torn, and names that no fsync of the folder followed.
Damage turns a byte over in what was durable, until it is repaired.
While it is installed it takes the place of functions of `os`; files elsewhere are none of its business.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from azq.parts.sim.world import Actor, World
from azq.replay.framing import MARK_BYTES, is_marked

CALL_S = 0.0005  # of the disk, mean


@dataclass(eq=False)
class Inode:
    """A file: what is durable, and what was done since, as (place, bytes) or (size, None) for a cut."""

    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    size: int = 0

    def left(self, rng: random.Random) -> bytes:
        """What a power cut leaves."""
        data = bytearray(self.durable)
        for place, written in self.pending:
            if rng.random() < 0.5:
                continue
            if written is None:
                data[place:] = bytes(max(0, place - len(data)))
                continue
            part = written[: rng.randint(0, len(written))] if rng.random() < 0.5 else written
            data.extend(bytes(max(0, place - len(data))))
            data[place : place + len(part)] = part
        return bytes(data)


class SimulatedDisk:
    """One folder without folders in it, and the processes that have its files open."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.full = False
        self._names: dict[str, Inode] = {}
        self._durable: dict[str, Inode] = {}
        self._open: dict[int, tuple[Inode | None, Actor]] = {}  # None: the folder
        self._damaged: list[tuple[Inode, int]] = []

    def power_cut(self) -> None:
        """Leaves what is durable, and some of what is not. Who had files open is dead by now."""
        rng = self.world.rng
        names = {name: inode for name, inode in self._durable.items() if name in self._names or rng.random() < 0.5}
        names |= {name: inode for name, inode in self._names.items() if name not in names and rng.random() < 0.5}
        for name in list(self._names):
            os.unlink(self.folder / name)
        self._names, self._durable = dict(names), dict(names)
        for name, inode in names.items():
            inode.durable, inode.pending = inode.left(rng), []
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
        data, durable = bytearray(path.read_bytes()), bytearray(inode.durable)
        for held in (data, durable):
            held[place] ^= 0xFF
        path.write_bytes(data)
        inode.durable = bytes(durable)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Sees what is done to its folder."""
        replaced = {name: getattr(os, name) for name in ("open", "close", "write", "ftruncate", "fsync", "replace", "unlink")}
        try:
            for name, real in replaced.items():
                setattr(os, name, getattr(self, f"_{name}_of")(real))
            yield
        finally:
            for name, real in replaced.items():
                setattr(os, name, real)

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

    def _opened(self, path: str, file: int, flags: int) -> None:
        inode = None
        if path:
            inode = self._names.setdefault(path, Inode())
            if flags & os.O_TRUNC and inode.size:
                inode.pending.append((0, None))
                inode.size = 0
        actor = self.world.current
        self._open[file] = inode, actor
        actor.at_exit.append(lambda: self._abandon(file, actor))

    def _abandon(self, file: int, actor: Actor) -> None:
        if self._open.get(file, (None, None))[1] is actor:
            os.close(file)

    def _open_of(self, real: Callable[..., int]) -> Callable[..., int]:
        def open_(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            file = real(path, flags, *rest, **more)
            if (name := self._inside(path)) is not None:
                self._opened(name, file, flags)
            return file

        return open_

    def _close_of(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def close(file: int) -> None:
            self._open.pop(file, None)
            real(file)

        return close

    def _write_of(self, real: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def write(file: int, data: Any) -> int:
            inode = self._open.get(file, (None, None))[0]
            if inode is None:
                return real(file, data)
            self._wait("write")
            taken = bytes(data)
            if self.full:
                taken = taken[: self.world.rng.randint(0, len(taken) - 1)]
                if not taken:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = real(file, taken)
            inode.pending.append((inode.size, taken[:written]))
            inode.size += written
            return written

        return write

    def _ftruncate_of(self, real: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def ftruncate(file: int, size: int) -> None:
            inode = self._open[file][0] if file in self._open and self.world.current else None
            real(file, size)
            if inode is not None and size != inode.size:
                inode.pending.append((size, None))
                inode.size = size

        return ftruncate

    def _fsync_of(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(file: int) -> None:
            if file not in self._open:
                return real(file)
            self._wait("fsync")
            inode = self._open[file][0]
            if inode is None:
                self._durable = dict(self._names)
                return None
            path = next(name for name, there in self._names.items() if there is inode)
            inode.durable, inode.pending = (self.folder / path).read_bytes(), []
            return None

        return fsync

    def _replace_of(self, real: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def replace(source: Any, target: Any) -> None:
            before, after = self._inside(source), self._inside(target)
            if before and self.world.acts:  # of a dead one nothing has an effect
                self._wait("rename")
            real(source, target)
            if before and after:
                self._names[after] = self._names.pop(before)

        return replace

    def _unlink_of(self, real: Callable[..., None]) -> Callable[..., None]:
        def unlink(path: Any, **more: Any) -> None:
            name = self._inside(path)
            if name and self.world.acts:
                self._wait("unlink")
            real(path, **more)
            if name:
                self._names.pop(name, None)

        return unlink
