"""Random histories against a model that knows only where each game is: in the pool, held under a lease, finished or abandoned.

Leases are used long after they were lost, games are named that a lease never held, time jumps: what a fleet of slow, killed and
doubled workers would do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from memory_broker import MemoryBus, MemoryLedger

from azq.errors import AzqError, LeaseLost, StateConflict
from azq.ledger.types import SET_ASIDE_REASON, Effort, LearnerLease, Lease, RequestKey, RunState
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord, SampleEvent

RUNS = ("a", "b")
MAX_ATTEMPTS = 2

small = st.integers(0, 5)
run_names = st.sampled_from(RUNS)
which = st.integers(0, 30)  # an index into what there is by then, modulo
uids = st.lists(st.integers(1, 12), max_size=4, unique=True)

operations = st.one_of(
    st.tuples(st.just("enqueue"), run_names, st.sampled_from(Kind)),
    st.tuples(st.just("enqueue_once"), run_names, st.sampled_from(["k1", "k2"]), st.sampled_from(["x", "y"])),
    st.tuples(st.just("mark_published"), which, st.integers(1, 3)),
    st.tuples(st.just("claim"), which, st.integers(0, 1), st.sampled_from(["w1", "w2"]), st.sampled_from([0.5, 5.0, 60.0])),
    st.tuples(st.just("claim"), which, st.just(0), st.sampled_from(["w1", "w2"]), st.just(5.0)),
    st.tuples(st.just("renew"), which),
    st.tuples(st.just("expire"), run_names),
    st.tuples(st.just("requeue"), which, st.integers(0, 1)),
    st.tuples(st.just("cancel"), which),
    st.tuples(st.just("adopt"), which, small),
    st.tuples(st.just("adopt"), which, small),
    st.tuples(st.just("adopt_named"), which, uids),
    st.tuples(st.just("journal"), which, uids),
    st.tuples(st.just("journal_held"), which, small),
    st.tuples(st.just("finish"), which, uids),
    st.tuples(st.just("finish_held"), which, small),
    st.tuples(st.just("finish_held"), which, small),
    st.tuples(st.just("abandon"), which, st.integers(1, 12)),
    st.tuples(st.just("release"), which, small),
    st.tuples(st.just("complete"), which, st.sampled_from(["", "bad"])),
    st.tuples(st.just("count_work"), which, small, small, small),
    st.tuples(st.just("fail"), which),
    st.tuples(st.just("kill"), run_names, st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.just("state"), run_names, st.sampled_from(list(RunState))),
    st.tuples(st.just("resume"), run_names),
    st.tuples(st.just("stall"), run_names, st.booleans()),
    st.tuples(st.just("insert"), run_names, small),
    st.tuples(st.just("insert"), run_names, small),
    st.tuples(st.just("take_learner"), run_names, st.sampled_from(["l1", "l2"])),
    st.tuples(st.just("take_learner"), st.just("a"), st.just("l1")),
    st.tuples(st.just("learner"), small, st.sampled_from(["renew_learner", "end_learner", "commit", "announce"])),
    st.tuples(st.just("learner"), st.integers(0, 1), st.just("announce")),
    st.tuples(st.just("refuse"), run_names, uids),
    st.tuples(st.just("restore"), run_names, st.integers(0, 15), st.lists(st.tuples(st.integers(1, 15), st.integers(0, 3)), max_size=3)),
    st.tuples(st.just("sleep"), st.integers(0, 8000)),
)


@dataclass
class Games:
    """Where the games of one run are, what is written of the open ones, and who may learn."""

    opened: int = 0
    open: dict[int, GameRecord] = field(default_factory=dict)
    holders: dict[int, Lease] = field(default_factory=dict)  # of open games; the others lie in the pool
    finished: set[int] = field(default_factory=set)
    abandoned: set[int] = field(default_factory=set)
    inserted: int = 0
    learner: LearnerLease | None = None

    def of(self, lease: Lease) -> list[int]:
        return sorted(uid for uid, holder in self.holders.items() if holder == lease)

    def take(self, lease: Lease, records: Iterable[GameRecord]) -> None:
        """Nobody else holds them; an open game is as it was written last, a new one has the next number."""
        for record in records:
            if record.uid not in self.open:
                self.opened += 1
                self.open[record.uid] = GameRecord(self.opened)
            assert record == self.open[record.uid]
            assert record.uid not in self.holders
            self.holders[record.uid] = lease

    def give_back(self, lease: Lease) -> None:
        for uid in self.of(lease):
            del self.holders[uid]

    def close(self, uids: Iterable[int], how: set[int]) -> None:
        for uid in uids:
            del self.open[uid]
            self.holders.pop(uid, None)
            how.add(uid)


class Alike:
    """Ledgers that are called as one and have to answer as one."""

    def __init__(self, ledgers: Sequence[MemoryLedger]) -> None:
        self._ledgers, self.client = ledgers, ledgers[0].client

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            answers: list[Any] = []
            for ledger in self._ledgers:
                try:
                    answers.append(getattr(ledger, method)(*arguments, **keywords))
                except AzqError as error:
                    answers.append(error)
            assert all(answer == answers[0] or repr(answer) == repr(answers[0]) for answer in answers)
            if isinstance(answers[0], AzqError):
                raise answers[0]
            return answers[0]

        return call


class History:
    """A ledger, what was done with it, and where its games are by that; of `others`, on whose buses the same is done, the same is heard."""

    def __init__(self, *others: MemoryBus) -> None:
        self.now = 1_000_000
        self.buses = [MemoryBus(), *others]
        self.bus = self.buses[0]
        self.ledger: Any = Alike([MemoryLedger(bus, clock_ms=lambda: self.now) for bus in self.buses])
        self.runs = {run: Games() for run in RUNS}
        self.jobs: list[str] = []
        self.leases: list[Lease] = []
        self.learners: list[LearnerLease] = []
        self.standing: dict[str, Lease] = {}  # by job
        self.ended: dict[str, Lease] = {}  # by job: the last one that its owner ended well
        self.nonce = 0
        for run in RUNS:
            self.ledger.create_run(RunRecord(run, b"{}", {"games": 10}, "x", 1))
        self.do("enqueue", "a", Kind.SELFPLAY)
        self.do("claim", 0, 0, "w1", 5.0)

    def do(self, name: str, *arguments: Any) -> None:
        if name not in NEEDS_LEASE:
            FREE[name](self, *arguments)
        elif self.leases:
            NEEDS_LEASE[name](self, self.leases[-1 - arguments[0] % len(self.leases)], *arguments[1:])

    def tried(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """What the ledger answers; None where it refuses."""
        try:
            return getattr(self.ledger, method)(*arguments, **keywords)
        except AzqError:
            return None

    def commit(self, lease: Lease, uids: Iterable[int], method: str, *arguments: Any, **keywords: Any) -> tuple[Any]:
        """What the ledger answers a lease, in a tuple; () where it refuses, which it does unless the lease stands and holds the games."""
        stands = self.standing.get(lease.job.job_id) == lease and set(uids) <= set(self.games(lease).of(lease))
        try:
            answer = getattr(self.ledger, method)(lease, *arguments, **keywords)
        except LeaseLost:
            assert not stands, (method, lease, uids)
            return ()  # type: ignore[return-value]
        assert stands, (method, lease, uids)
        return (answer,)

    def games(self, lease: Lease) -> Games:
        return self.runs[lease.job.run]

    def job(self, index: int) -> str:
        return self.jobs[index % len(self.jobs)]

    def attempt(self, job_id: str, behind: int) -> int:
        return getattr(self.tried("job", job_id), "attempt", 1) - behind

    def records(self, uids: Iterable[int]) -> list[GameRecord]:
        self.nonce += 1
        return [GameRecord(uid, self.nonce.to_bytes(4, "little")) for uid in uids]

    def end(self, lease: Lease) -> None:
        """Its games go back, but for those that are set aside for having killed once too often."""
        games = self.games(lease)
        reasons = self.ledger.abandoned(lease.job.run)
        games.close([uid for uid in games.of(lease) if reasons.get(uid) == SET_ASIDE_REASON], games.abandoned)
        games.give_back(lease)
        del self.standing[lease.job.job_id]

    def check(self) -> None:
        assert self.ledger.mend() == {}
        for run, games in self.runs.items():
            client: Any = self.ledger.client
            frames = client.hgetall(keys.open_games(run))
            assert games.open == {int(uid): decode(frame, GameRecord) if frame else GameRecord(int(uid)) for uid, frame in frames.items()}
            assert sorted(map(int, client.lrange(keys.pool(run), 0, -1))) == sorted(set(games.open) - set(games.holders))
            for job_id in self.jobs:
                if job_id.startswith(f"{run}:"):
                    held = {int(uid) for uid in client.smembers(keys.held(run, int(job_id.partition(":")[2])))}
                    assert held == set(games.of(self.standing[job_id]) if job_id in self.standing else ())
            assert set(self.ledger.abandoned(run)) == games.abandoned
            assert {int(uid) for uid in client.hkeys(keys.strikes(run))} <= set(games.open)
            counts = self.ledger.counts(run)
            assert (counts.opened, counts.inserted) == (games.opened, games.inserted)
            assert (counts.finished, counts.open, counts.abandoned) == tuple(map(len, (games.finished, games.open, games.abandoned)))
            assert counts.balanced
            samples = self.samples(run)
            assert len(samples) == len(set(samples) & games.finished)

    def samples(self, run: str) -> list[int]:
        return [decode(entry.frame, SampleEvent).record.uid for entry in self.bus.after(keys.samples(run), "0")]


def enqueue(history: History, run: str, kind: Kind) -> None:
    history.jobs.append(history.ledger.enqueue(Job("", run, kind, "cpu", games=3, slice_s=1.5, payload=b"p")).job.job_id)


def enqueue_once(history: History, run: str, key: str, body: str) -> None:
    answer = history.tried("enqueue_once", RequestKey(key, body), Job("", run, Kind.SELFPLAY, "cpu", games=3))
    if answer and not answer[1]:
        history.jobs.append(answer[0].job.job_id)


def claim(history: History, index: int, behind: int, owner: str, lease_s: float) -> None:
    job_id = history.job(index)
    if lease := history.tried("claim", job_id, history.attempt(job_id, behind), owner, lease_s):
        assert job_id not in history.standing
        history.leases.append(lease)
        history.standing[job_id] = lease


def adopt(history: History, lease: Lease, count: int) -> None:
    for records in history.commit(lease, (), "adopt", count):
        history.games(lease).take(lease, records)


def adopt_named(history: History, lease: Lease, uids: list[int]) -> None:
    for records in history.commit(lease, (), "adopt_named", uids):
        assert {record.uid for record in records} <= set(uids) & set(history.games(lease).open)
        history.games(lease).take(lease, records)


def journal(history: History, lease: Lease, uids: list[int]) -> None:
    records = history.records(uids)
    if history.commit(lease, uids, "journal", records):
        history.games(lease).open.update(zip(uids, records, strict=True))


def finish(history: History, lease: Lease, uids: list[int]) -> None:
    """Ends games; an odd number of them, and as many others begin."""
    games, others = history.games(lease), len(uids) if len(uids) % 2 else 0
    events = [SampleEvent(record, (1.0, -1.0), "w", 1) for record in history.records(uids)]
    for _, adopted in history.commit(lease, uids, "replace_games", events, others):
        games.close(uids, games.finished)
        games.take(lease, adopted)


def abandon(history: History, lease: Lease, uid: int) -> None:
    games = history.games(lease)
    if history.commit(lease, {uid} - games.abandoned, "abandon", uid, "why") and uid not in games.abandoned:
        games.close([uid], games.abandoned)


def end_well(history: History, lease: Lease, uids: list[int], method: str, *problem: str) -> None:
    """Also a second time, as where the first answer was lost, which changes nothing."""
    records = history.records(uids)
    arguments = (records,) if method == "release" else (b"result", *problem)
    if history.ended.get(lease.job.job_id) == lease:
        getattr(history.ledger, method)(lease, *arguments)
    elif history.commit(lease, uids, method, *arguments):
        history.games(lease).open.update(zip(uids, records, strict=True))
        history.end(lease)
        history.ended[lease.job.job_id] = lease


def fail(history: History, lease: Lease, max_attempts: int = MAX_ATTEMPTS) -> None:
    if history.commit(lease, (), "fail", "broken", max_attempts=max_attempts):
        history.end(lease)


def expire(history: History, run: str) -> None:
    over = history.ledger.expire(run, MAX_ATTEMPTS)
    for view in over:
        history.end(history.standing[view.job.job_id])


def stall(history: History, run: str, on: bool) -> None:
    for bus in history.buses:
        if on:
            bus.put(keys.stall(run), b"1")
        else:
            bus.delete(keys.stall(run))


def insert(history: History, run: str, count: int) -> None:
    """The learner reads some samples and acknowledges them with its count, in one step."""
    games, stream = history.runs[run], keys.samples(run)
    reads = [bus.read([stream], keys.LEARNER_GROUP, "c", count=count, block_ms=0) if count else [] for bus in history.buses]
    games.inserted += len(reads[0])
    ids = [entry.id for entries in reads for entry in entries]  # each bus has its own
    history.ledger.record_inserted(run, games.inserted, 0, ack=ids, lease=games.learner)


def take_learner(history: History, run: str, holder: str) -> None:
    if lease := history.tried("take_learner", run, holder, 5.0):
        history.learners.append(lease)
        history.runs[run].learner = lease


def as_learner(history: History, index: int, what: str) -> None:
    """What a learner does, also one that lost its place long ago, which is refused."""
    if not history.learners:
        return
    lease = history.learners[-1 - index % len(history.learners)]
    games, ledger = history.runs[lease.run], history.ledger
    calls: dict[str, Callable[[], None]] = {
        "renew_learner": lambda: ledger.renew_learner(lease),
        "end_learner": lambda: ledger.end_learner(lease),
        "commit": lambda: ledger.record_inserted(lease.run, games.inserted, 0, lease=lease),
        "announce": lambda: ledger.announce_weights(lease.run, b"weights", lease),
    }
    try:
        calls[what]()
    except StateConflict:
        assert lease != games.learner
    else:
        assert lease == games.learner


def restore(history: History, run: str, highest: int, spans: list[tuple[int, int]]) -> None:
    """A log that lacks some of the games stored so far and has others, as after a control plane or a folder was lost."""
    games = history.runs[run]
    games.opened = max(games.opened, highest)
    known = set(games.open) | games.abandoned | set(history.samples(run))
    numbers = {uid for first, length in spans for uid in range(first, first + length) if uid <= games.opened}
    gone = numbers - known
    missing = [(uid, uid) for uid in sorted(numbers - (known - set(games.open)))]
    games.inserted = games.opened - len(known | gone)
    assert history.ledger.restore(run, games.inserted, highest, missing, games.learner) == len(gone)
    games.abandoned |= gone
    games.finished = set(range(1, games.opened + 1)) - set(games.open) - games.abandoned


def kill(history: History, run: str, count: int, times: int) -> None:
    """Jobs that adopt some games and die of them; in between another one plays on."""
    for _ in range(times):
        for dies in (True, False):
            enqueue(history, run, Kind.SELFPLAY)
            before = len(history.leases)
            claim(history, -1, 0, "w3", 60.0)
            if len(history.leases) == before:
                return
            lease = history.leases[-1]
            adopt(history, lease, count)
            if dies:
                fail(history, lease, 1)
            else:
                journal(history, lease, history.games(lease).of(lease)[1:])
                end_well(history, lease, [], "release")


def refuse(history: History, run: str, uids: list[int]) -> None:
    """Reasons against games that are open, abandoned or never were change nothing; one against a stored game is no learner's."""
    games = history.runs[run]
    reasons = {uid: "why" for uid in uids if uid not in games.finished}
    history.ledger.record_inserted(run, games.inserted, 0, refused=reasons, lease=games.learner)


def sleep(history: History, milliseconds: int) -> None:
    history.now += milliseconds


def some(history: History, lease: Lease, count: int) -> list[int]:
    """Games that the lease holds."""
    return history.games(lease).of(lease)[:count]


FREE: dict[str, Callable[..., Any]] = {
    "enqueue": enqueue,
    "enqueue_once": enqueue_once,
    "mark_published": lambda history, index, attempt: history.ledger.mark_published(history.job(index), attempt),
    "claim": claim,
    "expire": expire,
    "requeue": lambda history, index, behind: history.tried("requeue", history.job(index), history.attempt(history.job(index), behind)),
    "cancel": lambda history, index: history.tried("cancel", history.job(index)),
    "state": lambda history, run, state: history.tried("set_run_state", run, state, "why"),
    "resume": lambda history, run: history.ledger.set_run_state(run, RunState.RUNNING),
    "stall": stall,
    "insert": insert,
    "take_learner": take_learner,
    "learner": as_learner,
    "refuse": refuse,
    "restore": restore,
    "kill": kill,
    "sleep": sleep,
}
NEEDS_LEASE: dict[str, Callable[..., Any]] = {
    "renew": lambda history, lease: history.commit(lease, (), "renew"),
    "adopt": adopt,
    "adopt_named": adopt_named,
    "journal": journal,
    "journal_held": lambda history, lease, count: journal(history, lease, some(history, lease, count)),
    "finish": finish,
    "finish_held": lambda history, lease, count: finish(history, lease, some(history, lease, count)),
    "abandon": abandon,
    "release": lambda history, lease, count: end_well(history, lease, some(history, lease, count), "release"),
    "complete": lambda history, lease, problem: end_well(history, lease, [], "complete", problem),
    "count_work": lambda history, lease, *work: history.commit(lease, (), "count_work", Effort(*work)),
    "fail": fail,
}
