"""The system that is hurt: an `azq.Local`, a reader of its learner's log, and watches.

Its processes are those that the kernel knows, whatever their heartbeats say: also those that only just start.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import psutil
import redis

from azq import metrics
from azq.actor.slice import journal_interval_s
from azq.bus.redis import RedisBus
from azq.errors import StateConflict
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts
from azq.local import Local, pid_of_server
from azq.parts.lab.drill.outcome import Disk, LedgerAccount
from azq.parts.lab.drill.scenarios import PROCESSES
from azq.process.kin import Victim, borne
from azq.process.proc import alive, status_of
from azq.replay import framing
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import Heartbeat, LearnerStatus, SampleEvent
from azq.wire.shards import data_names


class LogReader:
    """Reads on from where it stopped; half a record at the end is left for the next time."""

    def __init__(self, folder: Path, game: str) -> None:
        self._folder = folder
        self._game = game
        self.restart()

    def read(self) -> int:
        """Games in the log, copies included."""
        paths = sorted(self._folder.glob("*.seg"))
        if any(path.stat().st_size < self._ends.get(path, 0) for path in paths):
            self.restart()  # a learner cut off what it could not finish
        for path in paths:
            self._read(path)
        return len(self._uids) + self._copies.total()

    def disk(self) -> Disk:
        """The games that were read."""
        return Disk(self._uids, self._copies)

    def versions(self) -> frozenset[int]:
        """Versions of weights that games in the log were played with."""
        return frozenset(self._versions)

    def restart(self) -> None:
        """Makes the next read begin at the beginning."""
        self._ends: dict[Path, int] = {}
        self._uids: set[int] = set()
        self._copies: Counter[int] = Counter()
        self._versions: set[int] = set()

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
        self._versions |= set(np.frombuffer(record.weight_versions, "<u4").tolist())


RUN = "drill"
LEASE_S = 4.0
JOURNAL_S = 1.0
START_S = 90.0
READY_S = 60.0

T = TypeVar("T")


class Log:
    """A log from the moment this was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.begins_at = path.stat().st_size

    def says(self, *words: str) -> bool:
        """Whether some line holds all of these."""
        with self._path.open("rb") as file:
            file.seek(self.begins_at)
            return any(all(word.encode() in line for word in words) for line in file)


def read_account(client: redis.Redis, run: str) -> LedgerAccount:
    """The ledger's account of all games of a run; of one moment only where no game is leased meanwhile."""
    uids: Any = client.hkeys(keys.open_games(run))
    reasons: Any = client.hgetall(keys.abandoned(run))
    abandoned = {int(uid): bytes(reason).decode() for uid, reason in reasons.items()}
    return LedgerAccount(Ledger(client).counts(run).opened, frozenset(map(int, uids)), abandoned)


class System(Local):
    """A running azq that drills hurt; every question about it is answered None while its brokers are away."""

    def __init__(self, folder: Path | None, game: str, overrides: Sequence[str], *, prefix: str = "azq-drill-") -> None:
        super().__init__(game, run=RUN, folder=folder, prefix=prefix)
        self.settings = (
            "arena.every_s=0",
            f"selfplay.journal_s={JOURNAL_S}",
            "learner.checkpoint_every_s=2.0",
            "worker.evaluator=stream",  # every leaf crosses the streams, and a disturbed learner can follow
            "selfplay.cache_entries=0",
            f"daemon.lease_s={LEASE_S}",
            *overrides,
        )
        self._resent: dict[str, float] = {}
        self._watchers: list[Callable[[], None]] = []
        self.refused: set[int] = set()  # versions of weights that may never be served or played with
        self.log_reader = LogReader(self.folder / RUN / "segments", game)

    def start(self) -> Self:
        """Starts it and waits until games are learned from."""
        super().start()
        self.until(lambda: self.counted(lambda now: now.inserted > 20), "the first games", START_S)
        return self

    def put_away(self, passed: bool, progress: Callable[[str], None]) -> None:
        """Deletes its files once it has stopped; names their folder where a drill failed."""
        if passed:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            progress(f"files of the system are in {self.folder}")

    def until(self, condition: Callable[[], T | None], what: str, within_s: float) -> T:
        """As any `Local`, and calls what watches meanwhile."""

        def check() -> T | None:
            for watch in self._watchers:
                watch()
            return condition()

        return super().until(check, what, within_s)

    def rest(self, until_s: float, what: str = "rest") -> None:
        """Waits until a moment of the monotonic clock."""
        self.until(lambda: time.monotonic() >= until_s, what, max(0.0, until_s - time.monotonic()) + READY_S)

    @contextlib.contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Calls `watcher` while `until` waits."""
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def brokers(self) -> tuple[str, ...]:
        return ("broker-control", *(f"broker-{name}" for name in data_names(len(self.config().broker.data_planes))))

    def journal_s(self) -> float:
        """The longest time between two journal writes of a self-play slice."""
        settings = self.given()
        return journal_interval_s(settings.selfplay.journal_s, settings.daemon.lease_s)

    def counted(self, wanted: Callable[[LedgerCounts], bool]) -> bool:
        """Whether the ledger answers, and what is wanted holds of it."""
        counts = self.counts()
        return counts is not None and wanted(counts)

    def beats(self, role: str = "") -> list[Heartbeat]:
        """As any `Local`. Raises `StateConflict` where one names weights to be refused."""
        beats = super().beats()
        for beat in beats:
            self._resent[beat.worker] = max(self._resent.get(beat.worker, 0.0), beat.rates.get(metrics.RESENT, 0.0))
            if (version := beat.weight_versions.get(RUN, 0)) in self.refused:
                raise StateConflict(f"{beat.worker} works with weights that had to be refused: version {version}")
        return [beat for beat in beats if not role or beat.role == role]

    def learner_status(self) -> LearnerStatus | None:
        """What the learner said last; None where that is long ago, or the brokers are away."""
        frame = self.query(lambda client: RedisBus(client).get(keys.learner_status(RUN)))
        return decode(frame, LearnerStatus) if frame else None

    def pid(self, role: str) -> int | None:
        """Process id of a role's process, once it does its work."""
        if role.startswith("broker-"):
            return self.query(pid_of_server, role.removeprefix("broker-"))
        return pid_of(role, self.beats(role))

    def working(self, role: str) -> Victim:
        """A role's process, waited for until it does its work. Raises `NoVictim` for another system's."""
        return self.until(lambda: self.victim(role), f"{role} at work", READY_S)

    def victim(self, role: str) -> Victim | None:
        """A role's process, once it does its work; raises as `working`."""
        with borne():
            return self.kin.victim(pid, role) if (pid := self.pid(role)) is not None else None
        return None

    def replaced(self, role: str, before: Victim) -> bool:
        """Whether another process does a role's work."""
        return self.pid(role) not in (before.pid, None)

    def serving(self) -> dict[str, int]:
        """Process ids of the roles that work, brokers among them; a stopped process does not."""
        beats = self.beats()
        pids = {role: pid_of(role, [beat for beat in beats if beat.role == role]) for role in PROCESSES}
        pids |= {broker: self.pid(broker) for broker in self.brokers()}
        return {role: pid for role, pid in pids.items() if pid is not None and status_of(pid) not in ("", psutil.STATUS_STOPPED)}

    def log(self, role: str) -> Log:
        """What a process's log says from now on."""
        return Log(self.folder / RUN / "logs" / f"{role}.log")

    def resent(self) -> int:
        """Evaluations that were asked for again, as far as heartbeats report."""
        return int(sum(self._resent.values()))


def pid_of(role: str, beats: Sequence[Heartbeat]) -> int | None:
    """The process of the latest heartbeat of a role, where it lives and does its work."""
    for beat in beats[:1]:
        working = role in ("daemon", "selfplay") or beat.weight_versions.get(RUN, 0) > 0
        return beat.pid if working and alive(beat.pid) else None
    return None
