"""The ledger of the control plane: what was opened, who works on it, what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import redis

from azq import logs
from azq.errors import LeaseLost, NotFound, StateConflict, WireError
from azq.ledger import run_scripts, scripts
from azq.ledger.answers import counts_of, fields_of, job_view, new_job, run_look, run_view, split_job_id
from azq.ledger.once import reused
from azq.ledger.rules import KEPT_ENDED_JOBS, check_run_name, lease_ms, max_waiting
from azq.ledger.types import ONCE_LIFE_S, Directive, JobView, Lease, LedgerCounts, Once, RunLook, RunState, RunView
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.gate import agree_on_schema
from azq.wire.messages import GameRecord, RunRecord, SampleEvent

T = TypeVar("T")

log = logs.get(__name__)


class Ledger:
    """Jobs, leases, runs and open games.

    Each method that changes something is one Lua script: atomic, fenced, on the server's clock. None repeats itself; every method may
    raise `BrokerUnavailable` or `BrokerRefused`, and after `BrokerUnavailable` a change may have been made all the same.
    `journal`, `renew`, `abandon`, `release`, `complete` and `record_inserted` are safe to repeat. Safe to share between threads.
    """

    def __init__(self, client: redis.Redis, *, clock_ms: Callable[[], int] | None = None) -> None:
        self._client = client
        self._clock_ms = clock_ms
        self._scripts: dict[str, Any] = {}

    # -- runs

    def create_run(self, record: RunRecord) -> RunView:
        """A new run, running at once. Raises `StateConflict` when the name is taken, `ConfigError` when it is none, `SchemaMismatch`."""
        return self.create_run_once(record, None)[0]

    def create_run_once(self, record: RunRecord, once: Once | None) -> tuple[RunView, bool]:
        """A new run, or what the first request under this key created, and whether it is that. Raises also `KeyReused`."""
        check_run_name(record.run)
        agree_on_schema(self._client)
        self._pin(record.run, once)
        with translate(self._client):
            self._client.sadd(keys.RUNS, record.run)
        fingerprint = once.fingerprint if once else ""
        word, *answer = self._call(run_scripts.CREATE_RUN, record.run, "", encode(record), fingerprint, max_waiting(record), once=once)
        if word == "conflict":
            raise StateConflict(f"run {record.run} exists already; resume it, or choose another name")
        first = _first(word, answer)
        return (_new_run(first), True) if first is not None else (self.run(record.run), False)

    def first_run(self, name: str, once: Once | None) -> RunView | None:
        """The run that was created under this key, as it was then; None where none was. Raises `KeyReused`."""
        first = self._read_once(name, once)
        return None if first is None else _new_run(first)

    def run(self, name: str) -> RunView:
        """One run. Raises `NotFound` naming the runs there are."""
        now_ms, values = self._read_run(name)
        return run_view(now_ms, values)

    def runs(self) -> list[RunView]:
        """All runs, by name; one whose record does not decode is said and left out, so that it stops no other."""
        return self._read_all(run_scripts.READ_RUN, lambda _, answer: run_view(int(answer[0]), fields_of(answer[1])))

    def look(self) -> list[RunLook]:
        """All runs with their counts and jobs, by name, in one round trip; one whose record does not decode is said and left out."""
        return self._read_all(run_scripts.LOOK, run_look)

    def look_at(self, name: str) -> RunLook:
        """One run with its counts and jobs, in one round trip. Raises `NotFound` naming the runs there are."""
        word, *answer = self._call(run_scripts.LOOK, name, "")
        if word == "missing":
            raise self._no_run(name)
        return run_look(name, answer)

    def set_run_state(self, name: str, state: RunState, reason: str = "") -> RunView:
        """Changes a run's state; setting the one it has changes nothing.

        running <-> paused, either -> finished or failed, those -> running. Raises `NotFound` and `StateConflict`.
        """
        word, *answer = self._call(run_scripts.SET_RUN_STATE, name, "", state.value, reason)
        if word == "missing":
            raise self._no_run(name)
        if word == "conflict":
            raise StateConflict(f"run {name} is {answer[0].decode()} and cannot become {state.value}; resume it first")
        return self.run(name)

    def update_run(self, record: RunRecord) -> RunView:
        """Replaces what is kept of a run: settings, end, folder. Raises `NotFound`."""
        word, *_ = self._call(run_scripts.REPLACE_RECORD, record.run, "", b"", encode(record), max_waiting(record))
        if word == "missing":
            raise self._no_run(record.run)
        return self.run(record.run)

    def update_run_until(self, name: str, until: dict[str, float]) -> RunView:
        """Sets a run's end and leaves the rest of its record, whoever else changes that meanwhile. Raises `NotFound`."""
        while True:
            now_ms, values = self._read_run(name)
            changed = msgspec.structs.replace(run_view(now_ms, values).record, until=dict(until))
            word, *_ = self._call(run_scripts.REPLACE_RECORD, name, "", values["record"], encode(changed), max_waiting(changed))
            if word == "missing":
                raise self._no_run(name)
            if word == "ok":
                return self.run(name)

    # -- jobs

    def enqueue(
        self, run: str, kind: str, tag: str, *, priority: int = 6, games: int = 0, slice_s: float = 0, payload: bytes = b""
    ) -> JobView:
        """A new job: queued, attempt 1, not yet published. Raises `NotFound` for an unknown run."""
        return self.enqueue_once(None, run, kind, tag, priority=priority, games=games, slice_s=slice_s, payload=payload)[0]

    def enqueue_once(
        self,
        once: Once | None,
        run: str,
        kind: str,
        tag: str,
        *,
        priority: int = 6,
        games: int = 0,
        slice_s: float = 0,
        payload: bytes = b"",
    ) -> tuple[JobView, bool]:
        """A new job, or what the first request under this key enqueued, and whether it is that. Raises also `KeyReused`."""
        self._pin(run, once)
        values = (kind, tag, priority, games, repr(float(slice_s)), payload, once.fingerprint if once else "")
        word, *answer = self._call(scripts.ENQUEUE, run, "", *values, once=once)
        if word == "missing":
            raise self._no_run(run)
        first = _first(word, answer)
        return (new_job(run, first), True) if first is not None else (job_view(run, answer[0]), False)

    def first_job(self, run: str, once: Once | None) -> JobView | None:
        """The job that was enqueued under this key, as it was then; None where none was. Raises `KeyReused`."""
        first = self._read_once(run, once)
        return None if first is None else new_job(run, first)

    def mark_published(self, job_id: str, attempt: int) -> None:
        """Notes that this attempt was handed to the queue; too late, it changes nothing."""
        run, number = split_job_id(job_id)
        self._call(scripts.MARK_PUBLISHED, run, number, attempt)

    def job(self, job_id: str) -> JobView:
        """One job. Raises `NotFound`; ended jobs are kept for a while."""
        return self._job_answer(scripts.READ_JOB, job_id)

    def jobs(self, run: str | None = None, *, active_only: bool = True, limit: int = 1000) -> list[JobView]:
        """At most `limit` queued and leased jobs, longest published first; then, if asked for, at most `limit` ended ones, newest first."""
        views: list[JobView] = []
        for name in [run] if run is not None else self._names():
            _, answer = self._call(scripts.READ_JOBS, name, "", int(not active_only), max(1, limit))
            views += [job_view(name, item) for item in answer]
        return views

    def jobs_below(self, run: str, below: int | None = None, *, active_only: bool = True, limit: int = 200) -> list[JobView]:
        """At most `limit` jobs of a run whose number is below, highest first; ended ones too, if asked for."""
        _, answer = self._call(scripts.JOBS_BELOW, run, "", "" if below is None else below, int(not active_only), max(1, limit))
        return [job_view(run, item) for item in answer]

    def cancel(self, job_id: str) -> JobView:
        """Cancels a queued job at once; a leased one ends when its worker renews. Raises `NotFound`, or `StateConflict` if it ended."""
        return self._job_answer(scripts.CANCEL, job_id)

    def claim(self, job_id: str, attempt: int, owner: str, lease_s: float) -> Lease | None:
        """A lease on a queued job, or None: stale attempt, leased, ended, unknown, or its run does not want it now."""
        run, number = split_job_id(job_id)
        word, *answer = self._call(scripts.CLAIM, run, number, attempt, owner, lease_ms(lease_s))
        return Lease(job_view(run, answer[0]).job, attempt, owner, lease_s) if word == "ok" else None

    def renew(self, lease: Lease) -> Directive:
        """Lengthens a lease to `lease_s` from now. Raises `LeaseLost`."""
        return self._directive(scripts.RENEW, lease)

    def expire(self, run: str, max_attempts: int) -> list[JobView]:
        """Ends every lease whose time is over and returns those jobs as they are now.

        Held games go to the front of the pool; the job is queued again under its next attempt, unpublished, or failed once
        `max_attempts` leases in a row ended badly and without a finished game.
        """
        _, answer = self._call(scripts.EXPIRE, run, "", max_attempts)
        return [job_view(run, item) for item in answer]

    def requeue(self, job_id: str, attempt: int) -> JobView:
        """Gives a job whose message was lost its next attempt, unpublished. Raises `NotFound`, or `StateConflict` if it was claimed."""
        return self._job_answer(scripts.REQUEUE, job_id, attempt)

    # -- open games

    def adopt(self, lease: Lease, count: int) -> list[GameRecord]:
        """Exactly `count` games for a lease, from the pool first, then new ones; none while the run does not run. Raises `LeaseLost`.

        A record that does not decode is abandoned with the reason and left out.
        """
        _, *answer = self._commit(scripts.ADOPT, lease, max(0, count))
        games = []
        for uid, frame in zip(answer[::2], answer[1::2], strict=True):
            try:
                games.append(decode(frame, GameRecord) if frame else GameRecord(int(uid)))
            except WireError as error:
                self.abandon(lease, int(uid), f"record does not decode: {error}")
        return games

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        """Writes the records of held games and renews the lease. Raises `LeaseLost`, also for a game that the lease does not hold."""
        return self._directive(scripts.JOURNAL, lease, *_by_uid(records))

    def finish_games(self, lease: Lease, events: Sequence[SampleEvent]) -> Directive:
        """Closes the games, appends their samples and renews the lease, all in one step.

        Raises `LeaseLost`, also for a game that the lease does not hold: nothing of the call is committed then.
        """
        uids = [event.record.uid for event in events]
        if len(set(uids)) != len(uids):
            raise StateConflict("a game occurs twice among those to finish; finish each once")
        return self._directive(scripts.FINISH, lease, *(item for event in events for item in (event.record.uid, encode(event))))

    def abandon(self, lease: Lease, uid: int, reason: str) -> None:
        """Closes a game that nobody can play on. Raises `LeaseLost`, also for a game that the lease does not hold."""
        self._commit(scripts.ABANDON, lease, uid, reason)

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        """Writes the last changes, gives all held games to the front of the pool and ends the job. Raises `LeaseLost`."""
        self._commit(scripts.RELEASE, lease, *_by_uid(records))

    def complete(self, lease: Lease, result: bytes) -> None:
        """Appends a result frame to the run's results and ends the job. Raises `LeaseLost`."""
        self._commit(scripts.COMPLETE, lease, result)

    def fail(self, lease: Lease, error: str, *, max_attempts: int = 4) -> None:
        """Gives the games back; the job is queued under its next attempt, or failed as `expire` says."""
        self._commit(scripts.FAIL, lease, error, max_attempts)

    # -- counts

    def counts(self, run: str) -> LedgerCounts:
        """All counts at one moment. Raises `NotFound`."""
        word, *answer = self._call(scripts.COUNTS, run, "")
        if word == "missing":
            raise self._no_run(run)
        return counts_of(answer)

    def record_inserted(
        self, run: str, inserted: int, duplicates_dropped: int, *, ack: Sequence[str] = (), refused: Mapping[int, str] | None = None
    ) -> None:
        """Notes how many games the segment log holds: absolute numbers, safe to repeat. Raises `NotFound`.

        With the ids of sample entries in `ack` these are acknowledged and deleted in the same step, so that the counts balance at
        every moment. `refused` (uid -> reason) names finished games that break the rules: they are abandoned instead.
        """
        pairs = [part for uid, reason in (refused or {}).items() for part in (uid, reason)]
        word, *_ = self._call(
            scripts.RECORD_INSERTED, run, "", inserted, duplicates_dropped, keys.LEARNER_GROUP, len(pairs) // 2, *pairs, *ack
        )
        if word == "missing":
            raise self._no_run(run)

    # -- the one door to the server

    def _pin(self, run: str, once: Once | None) -> None:
        """Binds a key to its request for a day. Raises `KeyReused` where it is bound to another.

        A process that dies between this and the change has changed nothing; the same request may be sent again.
        """
        if once is None:
            return
        with translate(self._client):
            while not self._client.set(keys.pinned(once.key), _pin_of(run, once), nx=True, ex=ONCE_LIFE_S):
                if self._is_pinned(run, once):
                    return

    def _is_pinned(self, run: str, once: Once) -> bool:
        found = self._client.get(keys.pinned(once.key))
        if found not in (None, _pin_of(run, once)):
            raise reused()
        return found is not None

    def _read_once(self, run: str, once: Once | None) -> dict[str, bytes] | None:
        if once is None:
            return None
        with translate(self._client):
            if not self._is_pinned(run, once):
                return None
        word, *answer = self._call(run_scripts.READ_ONCE, run, "", once.fingerprint, once=once)
        return _first(word, answer)

    def _call(self, body: str, run: str, number: str, *arguments: str | bytes | float, once: Once | None = None) -> list[Any]:
        with translate(self._client):
            word, *answer = self._script(body)(keys=run_keys(run, once), args=[self._now(), number, *arguments])
        return [bytes(word).decode(), *answer]

    def _read_all(self, body: str, read: Callable[[str, list[Any]], T]) -> list[T]:
        """What a script answers of each run, all asked in one round trip."""
        names, found = self._names(), []
        with translate(self._client), self._client.pipeline(transaction=False) as pipe:
            for name in names:
                self._script(body)(keys=run_keys(name), args=[self._now(), ""], client=pipe)
            answers = pipe.execute()
        for name, (word, *answer) in zip(names, answers, strict=True):
            try:
                if word == b"ok":
                    found.append(read(name, answer))
            except WireError as error:
                log.warning("run_unreadable", run=name, reason=str(error))
        return found

    def _script(self, body: str) -> Any:
        script = self._scripts.get(body)
        if script is None:
            script = self._scripts.setdefault(body, self._client.register_script(scripts.source(body)))
        return script

    def _now(self) -> str | int:
        return "" if self._clock_ms is None else self._clock_ms()

    def _commit(self, body: str, lease: Lease, *arguments: str | bytes | float) -> list[Any]:
        run, number = split_job_id(lease.job.job_id)
        answer = self._call(body, run, number, lease.attempt, lease.owner, lease_ms(lease.lease_s), *arguments)
        if answer[0] == "lost":
            game = f", or never held game {answer[1].decode()}" if len(answer) > 1 else ""
            raise LeaseLost(f"{lease.owner} lost job {lease.job.job_id}, attempt {lease.attempt}{game}; nothing was committed")
        return answer

    def _directive(self, body: str, lease: Lease, *arguments: str | bytes | float) -> Directive:
        return Directive(self._commit(body, lease, *arguments)[1].decode())

    def _job_answer(self, body: str, job_id: str, *arguments: str | bytes | float) -> JobView:
        run, number = split_job_id(job_id)
        word, *answer = self._call(body, run, number, *arguments)
        if word == "missing":
            raise NotFound(f"no job {job_id}; only the newest {KEPT_ENDED_JOBS} ended jobs of a run are kept")
        if word == "conflict":
            raise StateConflict(f"job {job_id} is {answer[0].decode()}; nothing was changed")
        return job_view(run, answer[0])

    def _read_run(self, name: str) -> tuple[int, dict[str, bytes]]:
        word, *answer = self._call(run_scripts.READ_RUN, name, "")
        if word == "missing":
            raise self._no_run(name)
        return int(answer[0]), fields_of(answer[1])

    def _names(self) -> list[str]:
        with translate(self._client):
            names: Any = self._client.smembers(keys.RUNS)
        return sorted(name.decode() for name in names)

    def _no_run(self, name: str) -> NotFound:
        return NotFound(f"no run {name!r}; there are: {', '.join(self._names()) or 'none'}")


def run_keys(run: str, once: Once | None = None) -> list[str]:
    """The keys of one run in the order that the scripts take them."""
    return [
        keys.run(run),
        keys.ledger(run),
        keys.open_games(run),
        keys.pool(run),
        keys.abandoned(run),
        keys.jobs(run),
        keys.jobs_done(run),
        keys.samples(run),
        keys.results(run),
        keys.stall(run),
        keys.job_prefix(run),
        keys.held_prefix(run),
        keys.events(run),
        *([keys.once(run, once.key)] if once else []),
    ]


def _pin_of(run: str, once: Once) -> bytes:
    return f"{run} {once.fingerprint}".encode()


def _first(word: str, answer: Sequence[Any]) -> dict[str, bytes] | None:
    """What was created under a key before, where the script says so."""
    if word == "reused":
        raise reused()
    return fields_of(answer[0]) if word == "replayed" else None


def _new_run(values: Mapping[str, bytes]) -> RunView:
    return run_view(int(values["changed_ms"]), values)


def _by_uid(records: Iterable[GameRecord]) -> list[int | bytes]:
    return [item for record in records for item in (record.uid, encode(record))]
