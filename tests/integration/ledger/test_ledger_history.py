"""Random histories: the scripts on a real server and the rules in Python give the same answers and the same state.

Leases are used long after they were lost, games are named that a lease never held, time jumps: what a fleet of slow, killed and
doubled workers would do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from azq.bus.memory import MemoryBus
from azq.errors import AzqError
from azq.ledger import Ledger, MemoryLedger
from azq.ledger.rules.state import State
from azq.ledger.types import JobState, LearnerLease, Lease, LedgerCounts, Once, RunState
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunEvent, RunRecord, SampleEvent

RUNS = ("a", "b")
MAX_ATTEMPTS = 2

small = st.integers(0, 5)
run_names = st.sampled_from(RUNS)
which = st.integers(0, 30)  # an index into what there is by then, modulo
uids = st.lists(st.integers(1, 12), max_size=4, unique=True)

operations = st.one_of(
    st.tuples(st.just("enqueue"), run_names, st.sampled_from(Kind)),
    st.tuples(st.just("enqueue_once"), run_names, st.sampled_from(["k1", "k2"]), st.sampled_from(["x", "y"])),
    st.tuples(st.just("below"), run_names, st.integers(0, 8), st.integers(1, 3), st.booleans()),
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
    st.tuples(st.just("complete"), which),
    st.tuples(st.just("fail"), which),
    st.tuples(st.just("kill"), run_names, st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.just("state"), run_names, st.sampled_from(list(RunState))),
    st.tuples(st.just("resume"), run_names),
    st.tuples(st.just("until"), run_names, st.integers(0, 3)),
    st.tuples(st.just("stall"), run_names, st.booleans()),
    st.tuples(st.just("insert"), run_names, small),
    st.tuples(st.just("insert"), run_names, small),
    st.tuples(st.just("take_learner"), run_names, st.sampled_from(["l1", "l2"])),
    st.tuples(st.just("learner"), which, st.sampled_from(["renew_learner", "end_learner", "commit", "announce"])),
    st.tuples(st.just("refuse"), run_names, uids),
    st.tuples(st.just("restore"), run_names, st.integers(0, 15), st.lists(st.tuples(st.integers(1, 15), st.integers(0, 3)), max_size=3)),
    st.tuples(st.just("sleep"), st.integers(0, 8000)),
)


class Pair:
    """The same calls on both ledgers, on one clock, with every answer compared."""

    def __init__(self, client: Any) -> None:
        client.flushall()
        self.now = 1_000_000
        self.client = client
        self.bus = MemoryBus()
        self.real = Ledger(client, clock_ms=lambda: self.now)
        self.model = MemoryLedger(self.bus, clock_ms=lambda: self.now)
        self.jobs: list[str] = []
        self.leases: list[Lease] = []
        self.learners: list[LearnerLease] = []
        self.nonce = 0
        for run in RUNS:
            self.both("create_run", RunRecord(run, b"{}", {"games": 10}, "x", 1))

    def both(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        answers = [self._try(ledger, method, arguments, keywords) for ledger in (self.real, self.model)]
        assert answers[0] == answers[1], (method, arguments)
        return answers[0]

    def _try(self, ledger: Any, method: str, arguments: Any, keywords: Any) -> Any:
        try:
            return getattr(ledger, method)(*arguments, **keywords)
        except AzqError as error:
            return type(error)

    def job(self, index: int) -> str:
        return self.jobs[index % len(self.jobs)] if self.jobs else "a:1"

    def attempt(self, job_id: str, behind: int) -> int:
        view = self.both("job", job_id)
        return getattr(view, "attempt", 1) - behind

    def record(self, uid: int) -> GameRecord:
        self.nonce += 1
        return GameRecord(uid, self.nonce.to_bytes(4, "little"))

    def held(self, lease: Lease, count: int) -> list[int]:
        run, _, number = lease.job.job_id.rpartition(":")
        row = self.model.state(run).jobs.get(int(number))
        return sorted(row.held)[:count] if row else []

    def learner_of(self, run: str) -> LearnerLease | None:
        return next((lease for lease in reversed(self.learners) if lease.run == run), None)

    def do(self, name: str, *arguments: Any) -> None:
        if name in NEEDS_LEASE:
            if not self.leases:
                return
            lease = self.leases[-1 - arguments[0] % len(self.leases)]
            NEEDS_LEASE[name](self, lease, *arguments[1:])
        else:
            FREE[name](self, *arguments)

    def compare(self) -> None:
        self.both("mend")
        for run in RUNS:
            self.both("run", run)
            self.both("counts", run)
            self.both("jobs", run, active_only=False)
            state = self.model.state(run)
            frames = self.client.hgetall(keys.open_games(run))
            found = {int(uid): decode(frame, GameRecord) if frame else GameRecord(int(uid)) for uid, frame in frames.items()}
            assert found == dict(state.open)
            pool = [int(uid) for uid in self.client.lrange(keys.pool(run), 0, -1)]
            assert pool == list(state.pool)
            for number, row in state.jobs.items():
                assert {int(uid) for uid in self.client.smembers(keys.held(run, number))} == row.held
            samples = [decode(fields[b"f"], SampleEvent) for _, fields in self.client.xrange(keys.samples(run))]
            assert samples == [decode(entry.frame, SampleEvent) for entry in self.bus.after(keys.samples(run), "0")]
            assert self.client.xlen(keys.results(run)) == self.bus.length(keys.results(run))
            assert self.client.xlen(keys.weights(run)) == self.bus.length(keys.weights(run))
            struck = {int(uid): int(strikes) for uid, strikes in self.client.hgetall(keys.strikes(run)).items()}
            assert struck == dict(state.strikes)
            assert (self.client.hget(keys.ledger(run), "sound") == b"1") == state.sound
            place = {name.decode(): value.decode() for name, value in self.client.hgetall(keys.learner_lease(run)).items()}
            learner = state.learner
            assert (place.get("holder", ""), int(place.get("token", 0)), int(place.get("until_ms", 0))) == (
                learner.holder,
                learner.token,
                learner.until_ms,
            )
            assert self.said(self.client.xrange(keys.events(run))) == sorted(
                map(story, (decode(entry.frame, RunEvent) for entry in self.bus.after(keys.events(run), "0")))
            )
            check_invariants(state, self.model.counts(run), [event.record.uid for event in samples])

    def said(self, entries: Any) -> list[Any]:
        return sorted(story(decode(fields[b"f"], RunEvent)) for _, fields in entries)


def story(event: RunEvent) -> tuple[Any, ...]:
    return event.at_ms, event.kind, sorted(event.about.items())


def check_invariants(state: State, counts: LedgerCounts, finished_uids: list[int]) -> None:
    held = [uid for row in state.jobs.values() for uid in row.held]
    assert sorted([*held, *state.pool]) == sorted(state.open), "every open game is in the pool or held once"
    assert set(state.strikes) <= set(state.open), "only open games have strikes"
    assert all(not row.held for row in state.jobs.values() if row.view.state is not JobState.LEASED)
    assert counts.opened == counts.finished + counts.open + counts.abandoned
    assert len(set(finished_uids)) == len(finished_uids), "a game was finished twice"
    assert not set(finished_uids) & set(state.open)


def enqueue(pair: Pair, run: str, kind: Kind) -> None:
    pair.jobs.append(pair.both("enqueue", Job("", run, kind, "cpu", games=3, slice_s=1.5, payload=b"p")).job.job_id)


def enqueue_once(pair: Pair, run: str, key: str, body: str) -> None:
    answer = pair.both("enqueue_once", Once(key, body), Job("", run, Kind.SELFPLAY, "cpu", games=3))
    if isinstance(answer, tuple) and not answer[1]:
        pair.jobs.append(answer[0].job.job_id)


def claim(pair: Pair, index: int, behind: int, owner: str, lease_s: float) -> None:
    job_id = pair.job(index)
    lease = pair.both("claim", job_id, pair.attempt(job_id, behind), owner, lease_s)
    if isinstance(lease, Lease):
        pair.leases.append(lease)


def requeue(pair: Pair, index: int, behind: int) -> None:
    job_id = pair.job(index)
    pair.both("requeue", job_id, pair.attempt(job_id, behind))


def finish(pair: Pair, lease: Lease, numbers: list[int]) -> None:
    """Ends games; an odd number of them, and as many others begin."""
    others = len(numbers) if len(numbers) % 2 else 0
    pair.both("replace_games", lease, [SampleEvent(pair.record(uid), (1.0, -1.0), "w", 1) for uid in numbers], others)


def stall(pair: Pair, run: str, on: bool) -> None:
    if on:
        pair.client.set(keys.stall(run), b"1")
        pair.bus.put(keys.stall(run), b"1")
    else:
        pair.client.delete(keys.stall(run))
        pair.bus.delete(keys.stall(run))


def insert(pair: Pair, run: str, count: int) -> None:
    """The learner reads some samples and acknowledges them with its count, in one step."""
    stream = keys.samples(run)
    real = pair.client.xreadgroup(keys.LEARNER_GROUP, "c", {stream: ">"}, count=count) if has_group(pair, stream) and count else []
    model = pair.bus.read([stream], keys.LEARNER_GROUP, "c", count=count, block_ms=0)
    real_ids = [entry_id.decode() for _, items in real for entry_id, _ in items]
    assert len(real_ids) == len(model)
    inserted = pair.model.state(run).inserted + len(model)
    lease = pair.learner_of(run)
    pair.real.record_inserted(run, inserted, 0, ack=real_ids, lease=lease)
    pair.model.record_inserted(run, inserted, 0, ack=[entry.id for entry in model], lease=lease)
    assert pair.model.counts(run).balanced


def take_learner(pair: Pair, run: str, holder: str) -> None:
    lease = pair.both("take_learner", run, holder, 5.0)
    if isinstance(lease, LearnerLease):
        pair.learners.append(lease)


def as_learner(pair: Pair, index: int, what: str) -> None:
    """What a learner does, also one that lost its place long ago."""
    if not pair.learners:
        return
    lease = pair.learners[-1 - index % len(pair.learners)]
    if what == "commit":
        state = pair.model.state(lease.run)
        pair.both("record_inserted", lease.run, state.inserted, state.duplicates_dropped, lease=lease)
    elif what == "announce":
        pair.both("announce_weights", lease.run, b"weights", lease)
    else:
        pair.both(what, lease)


def restore(pair: Pair, run: str, highest: int, spans: list[tuple[int, int]]) -> None:
    """A log that lacks some of the games stored so far and has others, as after a control plane or a folder was lost."""
    state = pair.model.state(run)
    opened = max(state.opened, highest)
    known = (
        set(state.open) | set(state.abandoned) | {decode(e.frame, SampleEvent).record.uid for e in pair.bus.after(keys.samples(run), "0")}
    )
    numbers = {uid for first, length in spans for uid in range(first, first + length) if uid <= opened}
    gone = numbers - known
    stored = opened - len(known | gone)
    missing = [(uid, uid) for uid in sorted(numbers - (known - set(state.open)))]
    pair.both("restore", run, stored, highest, missing, pair.learner_of(run))
    if pair.learner_of(run) is None or pair.model.state(run).restored > state.restored:
        assert pair.model.counts(run).balanced


def kill(pair: Pair, run: str, count: int, times: int) -> None:
    """Jobs that adopt some games and die of them; in between another one plays on."""
    for _ in range(times):
        for dies in (True, False):
            view = pair.both("enqueue", Job("", run, Kind.SELFPLAY, "cpu"))
            lease = pair.both("claim", view.job.job_id, 1, "w3", 60.0)
            if not isinstance(lease, Lease):
                return
            adopted = pair.both("adopt", lease, count)
            if dies:
                pair.both("fail", lease, "died", max_attempts=1)
            else:
                pair.both("journal", lease, [pair.record(game.uid) for game in adopted[1:]])
                pair.both("release", lease, [])


def refuse(pair: Pair, run: str, numbers: list[int]) -> None:
    """Reasons against games that are open, abandoned or never were change nothing; one against a stored game is no learner's."""
    state = pair.model.state(run)
    stored = set(range(1, state.opened + 1)) - set(state.open) - set(state.abandoned)
    reasons = {uid: "why" for uid in numbers if uid not in stored}
    pair.both("record_inserted", run, state.inserted, state.duplicates_dropped, refused=reasons, lease=pair.learner_of(run))


def has_group(pair: Pair, stream: str) -> bool:
    if not any(group["name"] == keys.LEARNER_GROUP.encode() for group in groups(pair, stream)):
        pair.client.xgroup_create(stream, keys.LEARNER_GROUP, id="0", mkstream=True)
    return True


def groups(pair: Pair, stream: str) -> list[dict[str, Any]]:
    return pair.client.xinfo_groups(stream) if pair.client.exists(stream) else []


def sleep(pair: Pair, milliseconds: int) -> None:
    pair.now += milliseconds


FREE: dict[str, Callable[..., Any]] = {
    "enqueue": enqueue,
    "enqueue_once": enqueue_once,
    "below": lambda pair, run, below, limit, active: pair.both("jobs_below", run, below or None, active_only=active, limit=limit),
    "mark_published": lambda pair, index, attempt: pair.both("mark_published", pair.job(index), attempt),
    "claim": claim,
    "expire": lambda pair, run: pair.both("expire", run, MAX_ATTEMPTS),
    "requeue": requeue,
    "cancel": lambda pair, index: pair.both("cancel", pair.job(index)),
    "state": lambda pair, run, state: pair.both("set_run_state", run, state, "why"),
    "resume": lambda pair, run: pair.both("set_run_state", run, RunState.RUNNING),
    "until": lambda pair, run, games: pair.both("update_run_until", run, {"games": games}),
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
    "renew": lambda pair, lease: pair.both("renew", lease),
    "adopt": lambda pair, lease, count: pair.both("adopt", lease, count),
    "adopt_named": lambda pair, lease, numbers: pair.both("adopt_named", lease, numbers),
    "journal": lambda pair, lease, numbers: pair.both("journal", lease, [pair.record(uid) for uid in numbers]),
    "journal_held": lambda pair, lease, count: pair.both("journal", lease, [pair.record(uid) for uid in pair.held(lease, count)]),
    "finish": finish,
    "finish_held": lambda pair, lease, count: finish(pair, lease, pair.held(lease, count)),
    "abandon": lambda pair, lease, uid: pair.both("abandon", lease, uid, "why"),
    "release": lambda pair, lease, count: pair.both("release", lease, [pair.record(uid) for uid in pair.held(lease, count)]),
    "complete": lambda pair, lease: pair.both("complete", lease, b"result"),
    "fail": lambda pair, lease: pair.both("fail", lease, "broken", max_attempts=MAX_ATTEMPTS),
}


@pytest.fixture
def client(broker):
    client = connect(broker.control_url)
    yield client
    client.close()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=st.lists(operations, min_size=10, max_size=80))
def test_scripts_and_rules_agree_on_any_history(client, history):
    pair = Pair(client)
    pair.do("enqueue", "a", Kind.SELFPLAY)
    pair.do("claim", 0, 0, "w1", 5.0)
    for operation in history:
        pair.do(*operation)
    pair.compare()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=st.lists(operations, min_size=10, max_size=60))
def test_invariants_hold_after_every_step(client, history):
    pair = Pair(client)
    pair.do("enqueue", "a", Kind.SELFPLAY)
    pair.do("claim", 0, 0, "w1", 5.0)
    for operation in history:
        pair.do(*operation)
        pair.compare()
