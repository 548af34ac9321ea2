"""Books of what simulated processes truly did, kept beside the protocol, and the verdict on what it kept."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from azq.config import DaemonConfig
from azq.errors import SegmentError
from azq.ledger import Ledger
from azq.ledger.types import Directive, Lease, RunState, split_job_id
from azq.parts.sim.keyspace import Hash, Keyspace, Scores, Set
from azq.parts.sim.streams import Stream
from azq.replay import framing
from azq.replay.index import segment_path, segments_in
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import GameRecord, Message, PromotionEvent, SampleEvent, WeightEvent

Game = tuple[int, bytes]  # number, and a digest of what was played
AnyEvent = TypeVar("AnyEvent", bound=Message)

LEASE_MS = round(1000 * DaemonConfig().lease_s)
ENDED_JOBS = 8  # the newest, that are still looked at
MOST_JOBS, MOST_SAMPLES = 16, 96  # what four slots and a learner that is away may leave in the broker


def game_of(event: SampleEvent) -> Game:
    record = event.record
    return record.uid, hashlib.sha256(record.actions + record.policies).digest()[:8]


@dataclass
class Books:
    """What workers finished, and whose commits were taken."""

    tried: set[Game] = field(default_factory=set)  # that a worker handed over, whatever came of it
    finished: set[Game] = field(default_factory=set)  # that the ledger took, by its answer
    commits: dict[str, tuple[int, str]] = field(default_factory=dict)  # job -> newest attempt and owner of which a commit was taken
    released: set[tuple[str, int]] = field(default_factory=set)  # attempts of jobs that their owners ended
    served: dict[str, int] = field(default_factory=dict)  # inference worker -> version that it serves
    wrong: list[str] = field(default_factory=list)

    def committed(self, lease: Lease) -> None:
        """A commit under a lease was taken: none of an earlier attempt may be, nor of two owners of one attempt."""
        mine = lease.attempt, lease.owner
        newest = self.commits.setdefault(lease.job.job_id, mine)
        if mine[0] > newest[0]:
            self.commits[lease.job.job_id] = mine
        elif mine != newest:
            self.wrong.append(f"job {lease.job.job_id} was held by {newest[1]} (attempt {newest[0]}) and by {mine[1]} (attempt {mine[0]})")

    def serves(self, worker: str, version: int, run: str, space: Keyspace) -> None:
        """A worker serves a version, which was published and did serve once by what the promotions say."""
        if version not in (0, self.served.get(worker)) and version not in promoted(run, space):
            self.wrong.append(f"{worker} serves weights {version}, which were not promoted")
        self.served[worker] = version


class BookedLedger(Ledger):
    """The ledger as a worker calls it, each call in the books of its job's run, and in none where that was deleted or the lease is over."""

    now: Callable[[], tuple[Books, Keyspace]]
    books: Books

    def claim(self, job_id: str, attempt: int, owner: str, lease_s: float) -> Lease | None:
        lease = super().claim(job_id, attempt, owner, lease_s)
        books, space = self.now()
        job = space.get(keys.job(*split_job_id(job_id)).encode(), Hash)
        self.books = books if (job.get(b"owner"), job.get(b"attempt")) == (owner.encode(), b"%d" % attempt) else Books()
        return lease

    def replace_games(self, lease: Lease, events: Sequence[SampleEvent], count: int) -> tuple[Directive, list[GameRecord]]:
        self.books.tried.update(map(game_of, events))
        answer = super().replace_games(lease, events, count)
        self.books.finished.update(map(game_of, events))
        self.books.committed(lease)
        return answer

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        answer = super().journal(lease, records)
        self.books.committed(lease)
        return answer

    def renew(self, lease: Lease) -> Directive:
        answer = super().renew(lease)
        self.books.committed(lease)
        return answer

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        super().release(lease, records)
        self.books.released.add((lease.job.job_id, lease.attempt))


@dataclass(frozen=True)
class Kept:
    """A run as broker and disk hold it."""

    log: Sequence[Game]
    open: frozenset[int]
    abandoned: frozenset[int]
    opened: int
    finished: int
    inserted: int
    waiting: Sequence[Game]  # finished, in the sample stream

    @classmethod
    def read(cls, run: str, space: Keyspace, segments: Path) -> Kept:
        open_uids, abandoned = (frozenset(map(int, space.get(key(run).encode(), Hash))) for key in (keys.open_games, keys.abandoned))
        ledger = space.get(keys.ledger(run).encode(), Hash)
        opened, finished, inserted = (int(ledger.get(name, 0)) for name in (b"opened", b"finished", b"inserted"))
        waiting = [game_of(event) for event in events_in(space, keys.samples(run), SampleEvent)]
        log = [game_of(decode(frame, SampleEvent)) for frame in _frames(segments)]  # read without its index
        return cls(log, open_uids, abandoned, opened, finished, inserted, waiting)


def games_in(segments: Path) -> int:
    return sum(1 for _ in _frames(segments))


def _frames(segments: Path) -> Iterator[bytes]:
    for number in segments_in(segments):
        data = segment_path(segments, number).read_bytes()
        try:
            start = framing.read_header(data, "").size
        except SegmentError:  # begun when the power was cut: it holds no game
            continue
        yield from framing.frames(data, start, framing.parse(data, start).end)


@dataclass(frozen=True)
class BooksVerdict:
    """Games lost and doubled, and every promise that was broken."""

    lost: int
    doubled: int
    wrong: Sequence[str]


def judge(books: Books, record: Kept, *, rolled_back: bool) -> BooksVerdict:
    """Compares what was kept with what was done.

    Where the broker lost its last commands, a game that it had taken may be open again and end otherwise, or may never have been opened.
    """
    counts = Counter(uid for uid, _ in record.log)
    doubled = [uid for uid, count in counts.items() if count > 1]
    held = set(record.log) | set(record.waiting)
    if rolled_back:
        there = {uid for uid, _ in held} | record.open | record.abandoned
        lost = [uid for uid, _ in books.finished if uid not in there and uid <= record.opened]
    else:
        lost = [uid for uid, _ in books.finished - held]
    invented = [uid for uid, _ in held - books.tried]
    wrong = [f"game {uid} was finished and is lost" for uid in sorted(lost)]
    wrong += [f"game {uid} is in the log {counts[uid]} times" for uid in sorted(doubled)]
    wrong += [f"game {uid} was finished by no worker" for uid in sorted(invented)]
    if not rolled_back:
        wrong += [f"game {uid} is finished and open" for uid in sorted(record.open & set(counts))]
    again = len(record.open & set(counts))  # the ledger forgot that they ended
    if not record.waiting and (record.finished + again, record.inserted) != (len(counts), len(counts)):
        wrong.append(
            f"finished {record.finished} and inserted {record.inserted} are not the {len(counts)} games of the log, {again} of them open"
        )
    wrong += [f"game {uid} is in the log and abandoned" for uid in sorted(record.abandoned & set(counts))]
    if max(counts, default=0) > record.opened:
        wrong.append(f"the log has games above number {record.opened}, the highest that was given")
    return BooksVerdict(len(lost), len(doubled), wrong)


def events_in(space: Keyspace, stream: str, kind: type[AnyEvent]) -> list[AnyEvent]:
    """The events of a stream, oldest first."""
    return [decode(fields[1], kind) for fields in space.get(stream.encode(), Stream).fields.values()]


def promoted(run: str, space: Keyspace) -> list[int]:
    """The versions that served, the one that serves last: before the first promotion the oldest there is."""
    best, pinned = next((event.version for event in events_in(space, keys.weights(run), WeightEvent)), 0), 0
    served = [best]
    for event in events_in(space, keys.promotions(run), PromotionEvent):
        best = event.version if event.deed in ("promoted", "rolled_back") else best
        pinned = event.version if event.deed == "pinned" else 0 if event.deed == "unpinned" else pinned
        served.append(pinned or best)
    return served


def missing_weights(run: str, space: Keyspace, folder: Path) -> list[str]:
    """Versions that were announced and are not whole in the store."""
    blobs = {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}
    events = events_in(space, keys.weights(run), WeightEvent)
    return [f"weights {event.version} were announced and are not in the store" for event in events if event.sha256 not in blobs]


def jobs_of(run: str, space: Keyspace, ended: int = 0) -> dict[str, Hash]:
    """Its jobs that have not ended by number, and the newest of those that have."""
    numbers = [*space.get(keys.jobs(run).encode(), Scores), *space.get(keys.jobs_done(run).encode(), list)[:ended]]
    return {number: space.get(keys.job(run, number).encode(), Hash) for number in map(bytes.decode, numbers)}


def waiting_jobs(run: str, space: Keyspace) -> set[tuple[str, bytes]]:
    """Numbers and attempts of the jobs that no worker has."""
    return {(number, job[b"attempt"]) for number, job in jobs_of(run, space).items() if job.get(b"state") == b"queued"}


def is_at_rest(run: str, space: Keyspace, wanted: RunState) -> bool:
    """Whether it is paused or finished, no job is leased, of a finished one none is left, and no game waits for the learner."""
    states = [job.get(b"state") for job in jobs_of(run, space).values()]
    works = b"leased" in states if wanted is RunState.PAUSED else states
    there = space.get(keys.run(run).encode(), Hash).get(b"state") == wanted.encode()
    return there and not works and not space.get(keys.samples(run).encode(), Stream).ids


def broken_leases(run: str, space: Keyspace, books: Books, now_ms: int) -> list[str]:
    """What no lease may be, by the broker's clock, which was never set."""
    state = space.get(keys.run(run).encode(), Hash)
    paused_ms = int(state[b"changed_ms"]) if state.get(b"state") in (b"paused", b"finished") else now_ms
    wrong = []
    for name, job in jobs_of(run, space, ENDED_JOBS).items():
        leased = job.get(b"state") == b"leased"
        if leased and (f"{run}:{name}", int(job[b"attempt"])) in books.released:
            wrong.append(f"job {name} is leased after its owner released it")
        if leased and int(job[b"lease_until_ms"]) > now_ms + LEASE_MS:
            wrong.append(f"the lease of job {name} lasts too long by the broker's clock")
        if int(job.get(b"claimed_ms", 0)) > paused_ms:
            wrong.append(f"job {name} was claimed while the run was paused")
    return wrong


def imbalances(run: str, space: Keyspace) -> list[str]:
    """What in the ledger's keys contradicts itself at any moment, in the middle of any step."""
    ledger = {name: int(value) for name, value in space.get(keys.ledger(run).encode(), Hash).items() if value.isdigit()}
    open_uids = list(space.get(keys.open_games(run).encode(), Hash))
    pool = list(space.get(keys.pool(run).encode(), list))
    jobs = jobs_of(run, space)
    held = [uid for number in jobs for uid in space.get(keys.held(run, number).encode(), Set)]
    opened, ended = ledger.get(b"opened", 0), ledger.get(b"finished", 0) + ledger.get(b"abandoned", 0)
    waiting = len(space.get(keys.samples(run).encode(), Stream).ids)
    broken = {
        "the open games are not, each once, those of the pool and of leases": sorted(pool + held) != sorted(open_uids),
        f"opened {opened} is not finished and abandoned {ended} and open {len(open_uids)}": opened != ended + len(open_uids),
        f"an open game has a number above {opened}, the highest that was given": max(map(int, open_uids), default=0) > opened,
        f"{len(jobs)} jobs wait or are leased": len(jobs) > MOST_JOBS,
        f"{waiting} games wait for the learner": waiting > MOST_SAMPLES,
        "a game is abandoned and open": not space.get(keys.abandoned(run).encode(), Hash).keys().isdisjoint(open_uids),
    }
    return [promise for promise, is_broken in broken.items() if is_broken]
