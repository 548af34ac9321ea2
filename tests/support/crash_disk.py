"""A disk that may crash: records what a process does to the files below a folder, and makes every folder that a crash could leave.

After each step a crash may lose writes that no fsync of their file followed: all or some, earlier as well as later ones, the first or the
second half of one; a part that is lost before one that is there reads as zeros, or as what was there before. It may lose names that no
fsync of their folder followed. What was synced is there. Processes see a disk that works.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from azq.parts.sim.disk import after, in_place_of_os

STATES = 48  # looked at after one step, at most
LATELY = 3  # unsynced writes of a file of which each may be lost by itself; those before share one fate

Change = tuple[str, Any, Any]


@dataclass
class Thing:
    """A file's bytes or a folder's names: what is durable, and what was done since."""

    is_folder: bool
    durable: Any
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        self.durable, self.pending = self.after(["all"] * len(self.pending)), []

    def after(self, fates: Sequence[str]) -> Any:
        kept = [(change, fate) for change, fate in zip(self.pending, fates, strict=True) if fate != "none"]
        return self._names(kept) if self.is_folder else self._bytes(kept)

    def variants(self) -> list[Any]:
        """What a crash may leave; all of it and nothing of it first."""
        count = len(self.pending)
        found = [self.after(["all"] * count), self.after(["none"] * count)]
        recent = [("all", "none", "head", "back") if change[0] == "write" else ("all", "none") for change in self.pending[-LATELY:]]
        for before in ("all", "none"):
            for fates in itertools.product(*recent):
                found.append(self.after([before] * (count - len(fates)) + list(fates)))
        return [one for number, one in enumerate(found) if one not in found[:number]]

    def _names(self, kept: Sequence[tuple[Change, str]]) -> dict[str, int]:
        names = dict(self.durable)
        for (kind, name, thing), _ in kept:
            if kind == "link":
                names[name] = thing
            else:
                names.pop(name, None)
        return names

    def _bytes(self, kept: Sequence[tuple[Change, str]]) -> bytes:
        return after(self.durable, (_part(fate, place, written) for (_, place, written), fate in kept))


def _part(fate: str, place: int, written: Any) -> tuple[int, Any]:
    """What is left of a change to a file."""
    if fate == "all":
        return place, written
    half = len(written) // 2
    return (place, written[:half]) if fate == "head" else (place + half, written[half:])


class CrashDisk:
    """Records while it is installed; `ignored` is the place of an fsync that does nothing."""

    def __init__(self, root: Path, ignored: str = "") -> None:
        self.root = root
        self.places: set[str] = set()  # where fsync was called
        self._ignored = ignored
        self._faults: list[BaseException] = []
        self._steps: list[tuple[str, int, Any]] = []
        self._ids: dict[str, int] = {}
        self._files: dict[int, tuple[int, int]] = {}  # descriptor -> thing, position; -1: at the end
        self._sizes: dict[int, int] = {}
        self._start: dict[int, Thing] = {}
        self._os = SimpleNamespace(**vars(os))
        self._adopt(root)

    def installed(self) -> AbstractContextManager[Any]:
        """Records what is done below its folder."""
        return in_place_of_os(self, "mkdir")

    def break_next_fsync(self, error: BaseException) -> None:
        """The next fsync of a file that was written to raises, and syncs nothing."""
        self._faults.append(error)

    def acknowledge(self, *what: Any) -> None:
        """From here on somebody relies on it."""
        self._steps.append(("acknowledge", 0, what))

    def crashes(self, folder: Path, seed: int = 1) -> Iterator[tuple[Path, list[Any]]]:
        """Each folder that a crash could leave, made at `folder`, and what was acknowledged before."""
        things = {number: Thing(one.is_folder, one.durable) for number, one in self._start.items()}
        acknowledged: list[Any] = []
        seen: set[Any] = set()
        rng = random.Random(seed)
        for step in [("nothing", 0, None), *self._steps]:
            self._do(step, things, acknowledged)
            for state in self._states(things, rng):
                tree = self._tree(state, things, self._ids[str(self.root)])
                if (key := repr((tree, len(acknowledged)))) not in seen:
                    seen.add(key)
                    shutil.rmtree(folder, ignore_errors=True)
                    _make(folder, tree)
                    yield folder, list(acknowledged)

    def _do(self, step: tuple[str, int, Any], things: dict[int, Thing], acknowledged: list[Any]) -> None:
        kind, number, what = step
        if kind == "acknowledge":
            acknowledged.extend(what)
        elif kind == "make":
            things[number] = Thing(what, {} if what else b"")
        elif kind == "sync":
            things[number].sync()
        elif kind != "nothing":
            things[number].pending.append((kind, *what))

    def _states(self, things: dict[int, Thing], rng: random.Random) -> list[dict[int, Any]]:
        dirty = [number for number, thing in things.items() if thing.pending]
        choices = [things[number].variants() for number in dirty]
        count = 1
        for choice in choices:
            count *= len(choice)
        combined: Iterator[tuple[Any, ...]] = itertools.product(*choices)
        if count > STATES:
            extremes = itertools.islice(itertools.product(*(choice[:2] for choice in choices)), STATES // 2)
            one_by_one = (
                tuple(variant if place == number else choice[whole] for place, choice in enumerate(choices))
                for whole in (0, 1) for number, one in enumerate(choices) for variant in rng.sample(one, min(len(one), 8))
            )  # fmt: skip
            combined = itertools.chain(extremes, one_by_one)
        return [dict(zip(dirty, chosen, strict=True)) for chosen in combined]

    def _tree(self, state: dict[int, Any], things: dict[int, Thing], number: int) -> Any:
        held = state.get(number, things[number].durable)
        return {name: self._tree(state, things, child) for name, child in held.items()} if things[number].is_folder else held

    def _adopt(self, path: Path) -> int:
        number = self._ids[str(path)] = len(self._ids) + 1
        if path.is_dir():
            self._start[number] = Thing(True, {child.name: self._adopt(child) for child in path.iterdir()})
        else:
            self._start[number] = Thing(False, path.read_bytes())
            self._sizes[number] = path.stat().st_size
        return number

    def _below(self, path: Any) -> str:
        """The path as recorded; empty for those elsewhere."""
        text = os.path.abspath(os.fspath(path)) if isinstance(path, str | os.PathLike) else ""
        return text if text == str(self.root) or text.startswith(f"{self.root}/") else ""

    def _make_at(self, path: str, *, is_folder: bool) -> None:
        number = 1 + max(self._ids.values(), default=0) + sum(kind == "make" for kind, _, _ in self._steps)
        self._steps.append(("make", number, is_folder))
        self._sizes[number] = 0
        self._link(path, number)

    def _link(self, path: str, number: int) -> None:
        self._ids[path] = number
        parent, name = os.path.split(path)
        self._steps.append(("link", self._ids[parent], (name, number)))

    def _forget(self, path: str) -> None:
        del self._ids[path]
        parent, name = os.path.split(path)
        self._steps.append(("unlink", self._ids[parent], (name, None)))

    # -- in the place of functions of `os`

    def _open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        known = self._below(path)
        file: int = self._os.open(path, flags, *rest, **more)
        if known:
            if known not in self._ids:
                self._make_at(known, is_folder=False)
            number = self._ids[known]
            if flags & os.O_TRUNC:
                self._cut(number, 0)
            self._files[file] = number, -1 if flags & os.O_APPEND else 0
        return file

    def _close(self, file: int) -> None:
        self._files.pop(file, None)
        self._os.close(file)

    def _write(self, file: int, data: Any) -> int:
        written: int = self._os.write(file, data)
        if file in self._files:
            number, place = self._files[file]
            start = self._sizes[number] if place < 0 else place
            self._steps.append(("write", number, (start, bytes(data[:written]))))
            self._sizes[number] = max(self._sizes[number], start + written)
            self._files[file] = number, place if place < 0 else place + written
        return written

    def _ftruncate(self, file: int, size: int) -> None:
        self._os.ftruncate(file, size)
        if file in self._files:
            self._cut(self._files[file][0], size)

    def _cut(self, number: int, size: int) -> None:
        if self._sizes[number] != size:
            self._steps.append(("truncate", number, (size, None)))
            self._sizes[number] = size

    def _fsync(self, file: int) -> None:
        if file not in self._files:
            return
        if self._faults and self._steps and self._steps[-1][0] == "write":
            raise self._faults.pop()
        place = _caller()
        self.places.add(place)
        if place != self._ignored:
            self._steps.append(("sync", self._files[file][0], None))

    def _replace(self, source: Any, target: Any) -> None:
        self._os.replace(source, target)
        if known := self._below(source):
            self._link(self._below(target), self._ids[known])
            self._forget(known)

    def _unlink(self, path: Any, **more: Any) -> None:
        self._os.unlink(path, **more)
        if known := self._below(path):
            self._forget(known)

    def _mkdir(self, path: Any, *rest: Any, **more: Any) -> None:
        self._os.mkdir(path, *rest, **more)
        if known := self._below(path):
            self._make_at(known, is_folder=True)


def _caller() -> str:
    """The two innermost functions of azq that asked for it, such as `sync_folder < publish_file`."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and len(names) < 2:
        if frame.f_globals.get("__name__", "").startswith("azq."):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return " < ".join(names)


def _make(path: Path, tree: Any) -> None:
    if isinstance(tree, bytes):
        path.write_bytes(tree)
        return
    path.mkdir()
    for name, child in tree.items():
        _make(path / name, child)
