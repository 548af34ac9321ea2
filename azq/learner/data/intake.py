"""Sample events into the replay buffer: each game once, acknowledged only when on disk; a ledger that forgot games learns of them here."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from azq import logs
from azq.bus.base import Bus, Entry
from azq.clock import now_ns
from azq.config import RunSections
from azq.errors import BrokerUnavailable, StateConflict, WireError
from azq.ledger import Ledger
from azq.ledger.types import LearnerLease
from azq.phases import Phases
from azq.replay.samples import Rules, Samples, judge, mean_weight_version
from azq.replay.segments import LogEnd, LogEntry, SegmentLog
from azq.replay.window import Purges, Window
from azq.tracing import FINISH, SAMPLE_EVENT, TRACES
from azq.wire import keys
from azq.wire.codec import decode, encode, uid_of
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import SampleEvent

if TYPE_CHECKING:
    from azq.learner.lockstep import Lockstep  # which `azq up` does without
    from azq.learner.replication.uploader import Uploader  # needs torch, as does

BATCH = 256  # games read at once
PURGED_LIFE_S = 3600.0
MOST_TRACED = 1024
_READ = 1000  # entries of the sample stream at once
log = logs.get(__name__)


def game_key(sections: RunSections) -> str:
    """The game with its parameters, as stamped on segments and checkpoints."""
    params = json.dumps(sections.run.params, sort_keys=True) if sections.run.params else ""
    return sections.run.game + params


def restore(run: str, ledger: Ledger, bus: Bus, segments: SegmentLog, lease: LearnerLease | None) -> int:
    """Makes the ledger agree with the log, whatever it forgot; returns how many games were written off.

    Open games are read before those on their way, so that one which ends meanwhile is seen in one of both. Raises `StateConflict`.
    """
    last = max(ledger.counts(run).opened, segments.uids.highest)
    open_uids = ledger.open_uids(run) | _on_their_way(run, bus)
    missing = [span for gap in segments.uids.gaps(last) for span in _without(gap, open_uids)]
    gone = ledger.restore(run, segments.games, segments.uids.highest, missing, lease)
    log.warning("run_restored", run=run, games=segments.games, written_off=gone, lost="open games, arena results and history of before")
    return gone


def _on_their_way(run: str, bus: Bus) -> set[int]:
    uids: set[int] = set()
    last_id = "0"
    while entries := bus.after(keys.samples(run), last_id, count=_READ):
        last_id = entries[-1].id
        uids |= {uid for entry in entries if (uid := uid_of(entry.frame))}
    return uids


def _without(span: tuple[int, int], open_uids: set[int]) -> list[tuple[int, int]]:
    first, last = span
    cuts = sorted(uid for uid in open_uids if first <= uid <= last)
    edges = zip([first, *(cut + 1 for cut in cuts)], [*(cut - 1 for cut in cuts), last], strict=True)
    return [(low, high) for low, high in edges if low <= high]


@dataclass(frozen=True, slots=True)
class UnackedRead:
    """Entries of one read, whose games are on disk."""

    end: LogEnd  # behind them in the log
    games: int  # in the log by then
    duplicates: int  # dropped by then
    ids: Sequence[str] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    unreadable: Sequence[tuple[Entry, str]] = ()  # letters to be kept once they are acknowledged


def count_ready(reads: Sequence[UnackedRead], uploaded: LogEnd | None, most: int, acknowledged: int) -> int:
    """How many of the oldest may be acknowledged: all that are in the store, and those beyond the newest `most` games.

    `uploaded`: how far the store has the log, None where it keeps no games; `acknowledged`: games that were before.
    """
    if uploaded is None or not reads:
        return len(reads)
    within = reads[-1].games - max(most, 0)
    return sum(read.end <= uploaded or acknowledged < read.games <= within for read in reads)


class UnackedReads:
    """Reads that are not acknowledged yet, oldest first; about `most` games at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._reads: deque[UnackedRead] = deque()
        self._alone: deque[UnackedRead] = deque()  # acknowledged, and on this host's disk alone
        self._before = 0  # games up to those
        self.last: UnackedRead | None = None  # that was acknowledged

    def __len__(self) -> int:
        return len(self._reads)

    @property
    def ids(self) -> set[str]:
        return {entry for read in self._reads for entry in read.ids}

    @property
    def alone(self) -> int:
        """Acknowledged games that are on this host's disk alone."""
        return self._alone[-1].games - self._before if self._alone else 0

    def add(self, read: UnackedRead) -> None:
        self._reads.append(read)

    def ready(self, uploaded: LogEnd | None) -> list[UnackedRead]:
        """The reads that may be acknowledged now; pass them to `acknowledged` afterwards."""
        count = count_ready(self._reads, uploaded, self._most, self.last.games if self.last else 0)
        return [self._reads[index] for index in range(count)]

    def acknowledged(self, done: Sequence[UnackedRead], uploaded: LogEnd | None) -> None:
        for read in done:
            self._reads.popleft()
            if uploaded is not None and read.end > uploaded:
                if not self._alone:
                    self._before = self.last.games if self.last else 0
                    log.warning("games_on_one_disk", reason="the store is away, or slower than games come", most_waiting=self._most)
                self._alone.append(read)
            self.last = read
        self._forget(uploaded)

    def _forget(self, uploaded: LogEnd | None) -> None:
        was = bool(self._alone)
        while self._alone and uploaded is not None and self._alone[0].end <= uploaded:
            self._before = self._alone.popleft().games
        if was and not self._alone:
            log.info("games_kept", games=self._before)


@dataclass(slots=True)
class _Sorted:
    """Entries of one read, by outcome."""

    fresh: dict[int, LogEntry] = field(default_factory=dict)  # by uid
    samples: list[Samples] = field(default_factory=list)
    duplicates: int = 0
    unreadable: list[tuple[Entry, str]] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)  # uid -> reason, of games that break the rules
    accepted: list[SampleEvent] = field(default_factory=list)  # the fresh ones


@dataclass(eq=False)
class Intake:
    """Consumes a run's sample stream in the group `learner`.

    Order: append and fsync, then, where the run's store keeps games, wait until it has them, then acknowledge and count in one step of the
    ledger. A death in between leaves entries that are read again and dropped by their game number.
    """

    run: str
    game: Rules
    _: KW_ONLY
    bus: Bus
    ledger: Ledger
    segments: SegmentLog
    window: Window
    consumer: str
    duplicates: int = 0
    lease: LearnerLease | None = None  # its place in the control plane, where others may want it
    purges: Purges | None = None  # whose games stay out of the window
    lockstep: Lockstep | None = None  # which brings games to the window instead
    uploader: Uploader | None = None  # of a store that keeps games: what it has may be acknowledged
    most_unacked: int = 0  # games that wait for it
    phases: Phases = field(default_factory=partial(Phases, cpu_clock=time.thread_time))  # of the thread that takes in
    dead_letters: int = field(default=0, init=False)
    mean_weight_version: float = field(default=0.0, init=False)  # of the games of the last read
    unacked: UnackedReads = field(init=False)
    traced: deque[bytes] = field(default_factory=partial(deque, maxlen=MOST_TRACED), init=False)  # games that no step followed yet
    _opened: int = field(default=0, init=False)  # games that the ledger knew of when it was asked last

    def __post_init__(self) -> None:
        self.unacked = UnackedReads(self.most_unacked)

    def claim_leftovers(self) -> int:
        """Takes in unacknowledged entries of this learner's failures or its predecessor; returns games seen."""
        stream, seen = keys.samples(self.run), 0
        while True:
            unacked = self.unacked.ids
            claimed = self.bus.claim(stream, keys.LEARNER_GROUP, self.consumer, min_idle_ms=0, count=BATCH + len(unacked))
            entries = [entry for entry in claimed if entry.id not in unacked]
            if not entries:
                self._add_log()  # where none of its games waits in the stream, to be counted with it
                return seen
            self._take(entries)
            seen += len(entries)

    def read(self) -> int:
        """Takes in one read of new entries, `BATCH` at most; returns how many there were."""
        with self.phases("intake"):
            entries = self.bus.read([keys.samples(self.run)], keys.LEARNER_GROUP, self.consumer, count=BATCH, block_ms=0)
            if entries:
                self._take(entries)
            else:
                self.acknowledge_ready()
        return len(entries)

    def acknowledge_ready(self) -> None:
        """Acknowledges all reads that may be; the next call retries a failure."""
        uploaded = self.uploader.uploaded if self.uploader else None
        ready = self.unacked.ready(uploaded)
        if not ready:
            return
        refused = {uid: reason for read in ready for uid, reason in read.refused.items()}
        ids = [entry for read in ready for entry in read.ids]
        self.ledger.record_inserted(self.run, ready[-1].games, ready[-1].duplicates, ack=ids, refused=refused, lease=self.lease)
        self.unacked.acknowledged(ready, uploaded)
        for entry, reason in (letter for read in ready for letter in read.unreadable):
            self._refuse(entry, reason)

    def agree_with_ledger(self) -> None:
        """Brings both to the same counts after a start or an outage: the log knows the games, the ledger may know more duplicates.

        A ledger that forgot games goes on from the log. Raises `StateConflict` where the log lacks games that it acknowledged.
        """
        counts, stored = self.ledger.counts(self.run), self.segments.games
        if counts.inserted > stored:
            raise StateConflict(
                f"the folder of run {self.run} holds {stored} games, and {counts.inserted} were stored: it is another one, or it was cut; "
                f"put the right one back, or write off what is lost: azq runs restore FOLDER --run {self.run}"
            )
        self.duplicates = max(self.duplicates, counts.duplicates_dropped)
        if self.segments.uids.highest > counts.opened:
            restore(self.run, self.ledger, self.bus, self.segments, self.lease)
        self._update_ledger()
        self._purge()

    def _add_log(self) -> None:
        """At a start, counts the log's games."""
        if self.unacked.last is None and not self.unacked:
            self.unacked.add(UnackedRead(self.segments.end, self.segments.games, self.duplicates))
            self.acknowledge_ready()

    def _update_ledger(self) -> None:
        """The counts as they were acknowledged last; at a start all that the log has, once the store has it."""
        if self.uploader is None:
            self._add_log()
        if (last := self.unacked.last) is not None:
            self.ledger.record_inserted(self.run, last.games, self.duplicates, lease=self.lease)
        self.acknowledge_ready()

    def _purge(self) -> None:
        """Follows new purge orders and reports them; the log keeps the games, and the ledger its counts."""
        frame = self.bus.get(keys.purges(self.run)) if self.purges is not None else None
        if frame is None or self.purges is None:
            return
        for worker, until_ms in self.purges.order(decode(frame, PurgeOrders).until_ms).items():
            before = len(self.window)
            games, samples = self.window.drop(worker)
            log.warning("games_purged", worker=worker, games=games, samples=samples, window=before)
            report = encode(PurgedGames(until_ms, games, samples, before))
            self.bus.put(keys.purged(self.run, worker), report, life_s=PURGED_LIFE_S)

    def _take(self, entries: Sequence[Entry]) -> None:
        began_ns, result = now_ns(), self._sort(entries)
        self.segments.append(list(result.fresh.values()))
        if self.lockstep is not None:
            self.lockstep.bring(result.accepted)
        for samples in result.samples if self.lockstep is None else ():
            self.window.add(samples)
        traced = TRACES.sampled("game", self.run, self.segments.created_ms, numbers=result.fresh)
        TRACES.add((SAMPLE_EVENT,), traced, began_ns, below=(FINISH,))
        self.traced += traced
        self.duplicates += result.duplicates
        ids = [entry.id for entry in entries]
        self.unacked.add(UnackedRead(self.segments.end, self.segments.games, self.duplicates, ids, result.refused, result.unreadable))
        self.acknowledge_ready()
        if result.duplicates:
            log.info("duplicates_dropped", count=result.duplicates)
        if result.accepted:
            self.mean_weight_version = mean_weight_version(*result.accepted)

    def _refuse(self, entry: Entry, reason: str) -> None:
        """Keeps the head of a frame for inspection where there is memory for it; the entry itself is acknowledged by then."""
        self.dead_letters += 1
        log.warning("sample_refused", entry=entry.id, reason=reason)
        with suppress(BrokerUnavailable):
            self.bus.dead_letter(entry, reason)

    def _sort(self, entries: Sequence[Entry]) -> _Sorted:
        result = _Sorted()
        waiting = self._decoded(entries, result)
        while waiting:
            once: dict[int, tuple[Entry, SampleEvent]] = {}
            again: list[tuple[Entry, SampleEvent]] = []  # copies of a game in one read: the next counts where the first is refused
            for entry, event in waiting:
                uid = event.record.uid
                if uid in result.fresh or uid in self.segments:
                    result.duplicates += 1
                elif uid in once:
                    again.append((entry, event))
                else:
                    once[uid] = (entry, event)
            self._judge(once, result)
            waiting = again
        return result

    def _decoded(self, entries: Sequence[Entry], result: _Sorted) -> list[tuple[Entry, SampleEvent]]:
        decoded = []
        for entry in entries:
            try:
                decoded.append((entry, decode(entry.frame, SampleEvent)))
            except WireError as error:
                result.unreadable.append((entry, str(error)))
                # Its open record is gone, so that no worker can play it again.
                if (uid := uid_of(entry.frame)) > 0 and uid not in self.segments:
                    result.refused[uid] = f"its sample was damaged: {error}"
        return self._without_forged(decoded, result)

    def _without_forged(self, decoded: list[tuple[Entry, SampleEvent]], result: _Sorted) -> list[tuple[Entry, SampleEvent]]:
        """Leaves out games that the ledger never opened; it is asked once a read at most."""
        if max((event.record.uid for _, event in decoded), default=0) <= self._opened:
            return decoded
        self._opened = self.ledger.counts(self.run).opened
        forged = [(entry, event.record.uid) for entry, event in decoded if event.record.uid > self._opened]
        result.unreadable += [(entry, f"game {uid} was never opened; its writer holds no lease") for entry, uid in forged]
        return [(entry, event) for entry, event in decoded if event.record.uid <= self._opened]

    def _judge(self, once: Mapping[int, tuple[Entry, SampleEvent]], result: _Sorted) -> None:
        purged = {uid for uid, (_, event) in once.items() if self.purges and self.purges.drops(event)}
        self._judge_alike({uid: copy for uid, copy in once.items() if uid not in purged}, result, into_window=True)
        self._judge_alike({uid: copy for uid, copy in once.items() if uid in purged}, result, into_window=False)

    def _judge_alike(self, once: Mapping[int, tuple[Entry, SampleEvent]], result: _Sorted, *, into_window: bool) -> None:
        judged = judge(self.game, [event for _, event in once.values()], self.window.columns)
        result.samples += judged.samples if into_window else []
        for uid, count in judged.counts.items():
            result.fresh[uid] = LogEntry(uid, count, once[uid][0].frame)
            result.accepted.append(once[uid][1])
            result.refused.pop(uid, None)
        for uid, reason in judged.refused.items():
            result.unreadable.append((once[uid][0], reason))
            if uid > 0:  # else it is no game of the ledger's
                result.refused[uid] = reason
