"""What the learner's log on disk proves: which games it holds, how often, and by which weights. Reads beside a learner that writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from azq.drill.proof import Disk
from azq.replay import framing
from azq.wire.codec import decode
from azq.wire.messages import BROWSER_PREFIX, SampleEvent


@dataclass(frozen=True, slots=True)
class Tally:
    """Games in the log, those of them stored more than once, and the simulations searched for them."""

    games: int = 0
    twice: int = 0
    simulations: int = 0


class Evidence:
    """Reads on from where it stopped; half a record at the end is left for the next time."""

    def __init__(self, folder: Path, game: str) -> None:
        self._folder = folder
        self._game = game
        self.begin()

    def read(self) -> Tally:
        paths = sorted(self._folder.glob("*.seg"))
        if any(path.stat().st_size < self._ends.get(path, 0) for path in paths):
            self.begin()  # a learner cut off what it could not finish
        for path in paths:
            self._read(path)
        twice = self._copies.total()
        return Tally(len(self._uids) + twice, twice, self._simulations)

    def disk(self) -> Disk:
        """The games that were read."""
        return Disk(self._uids, self._copies)

    def versions(self) -> frozenset[int]:
        """Versions of weights that games in the log were played with."""
        return frozenset(self._versions)

    def by_tabs(self) -> Counter[int]:
        """Games of browsers' tabs by each version that they were played with."""
        return Counter(self._tab_versions)

    def finished_ms(self, owner: str) -> int:
        """When a worker's newest game was finished, by its own clock; 0 where it finished none."""
        return self._finished_ms.get(owner, 0)

    def begin(self) -> None:
        """Has all of it read again."""
        self._ends: dict[Path, int] = {}
        self._uids: set[int] = set()
        self._copies: Counter[int] = Counter()
        self._versions: set[int] = set()
        self._tab_versions: Counter[int] = Counter()
        self._finished_ms: dict[str, int] = {}
        self._simulations = 0

    def _read(self, path: Path) -> None:
        end = self._ends.get(path, 0)
        with path.open("rb") as file:
            file.seek(end)
            data = file.read()
        head = framing.header(self._game)
        if not end and len(data) < len(head):
            return
        start = 0 if end else framing.check_header(data, self._game, str(path))
        parsed = framing.parse(data, start)
        for frame in framing.frames(data, start, parsed.end):
            self._count(decode(frame, SampleEvent))
        self._ends[path] = end + parsed.end

    def _count(self, event: SampleEvent) -> None:
        record = event.record
        if record.uid in self._uids:
            self._copies[record.uid] += 1
        self._uids.add(record.uid)
        versions = set(np.frombuffer(record.weight_versions, "<u4").tolist())
        self._versions |= versions
        self._tab_versions.update(versions if event.worker.startswith(BROWSER_PREFIX) else ())
        self._finished_ms[event.worker] = event.finished_ms
        self._simulations += int(np.frombuffer(record.simulations, np.uint16).sum(dtype=np.int64))
