"""The ledger of the control plane: what was opened, who works on it, what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from azq.errors import LeaseLost, StateConflict, WireError
from azq.ledger.holder import spoken, take_place
from azq.ledger.runs import LedgerRuns
from azq.ledger.scripts import Argument, fields_of, job_view, new_job, spelt, text_of
from azq.ledger.types import Directive, Effort, JobView, LearnerLease, Lease, RequestKey, split_job_id
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.messages import GameRecord, Job, SampleEvent

MAX_ATTEMPTS = 4  # leases of a job in a row that end badly and without a finished game: then it has failed


class Ledger(LedgerRuns):
    """Jobs, leases, open games and the learner, beside the runs of `LedgerRuns`.

    Each method that changes something is one Lua script: atomic, fenced, on the server's clock. None repeats itself; every method may
    raise `BrokerUnavailable` or `BrokerRefused`, and after `BrokerUnavailable` a change may have been made all the same.
    `journal`, `renew`, `count_work`, `abandon`, `release`, `complete`, `renew_learner` and `record_inserted` are safe to repeat. Safe to
    share between threads.
    """

    # -- jobs

    def enqueue(self, job: Job) -> JobView:
        """A new job, whose id the ledger gives: queued, attempt 1, not yet published. Raises `NotFound` for an unknown run."""
        return self.enqueue_once(None, job)[0]

    def enqueue_once(self, once: RequestKey | None, job: Job) -> tuple[JobView, bool]:
        """A new job, or what the first request under this key enqueued, and whether it is that. Raises also `KeyReused`."""
        self.pin(job.run, once)
        word, *answer = self.call("jobs.enqueue", job.run, once.fingerprint if once else "", *spelt(job), once=once)
        return (new_job(job.run, fields_of(answer[0])), True) if word == "replayed" else (job_view(job.run, answer[0]), False)

    def first_job(self, run: str, once: RequestKey | None) -> JobView | None:
        """The job that was enqueued under this key, as it was then; None where none was. Raises `KeyReused`."""
        first = self.read_once(run, once)
        return None if first is None else new_job(run, first)

    def mark_published(self, job_id: str, attempt: int) -> None:
        """Notes that this attempt was handed to the queue; too late, it changes nothing."""
        run, number = split_job_id(job_id)
        self.call("jobs.mark_published", run, number=number, holder=(attempt, "", ""))

    def job(self, job_id: str) -> JobView:
        """One job. Raises `NotFound`; ended jobs are kept for a while."""
        return self._job_answer("jobs.read", job_id)

    def jobs(self, run: str | None = None) -> list[JobView]:
        """Queued and leased jobs of a run, or of all runs by name: the newest 1,000 of each, oldest first."""
        return [view for name in (self.names() if run is None else [run]) for view in reversed(self.jobs_below(name, limit=1000))]

    def jobs_below(self, run: str, below: int | None = None, *, active_only: bool = True, limit: int = 200) -> list[JobView]:
        """At most `limit` jobs of a run whose number is below, highest first; ended ones too, if asked for."""
        _, answer = self.call("jobs.below", run, "" if below is None else below, int(not active_only), max(1, limit))
        return [job_view(run, item) for item in answer]

    def cancel(self, job_id: str) -> JobView:
        """Cancels a queued job at once; a leased one ends when its worker renews. Raises `NotFound`, or `StateConflict` if it ended."""
        return self._job_answer("jobs.cancel", job_id)

    def claim(self, job_id: str, attempt: int, owner: str, lease_s: float) -> Lease | None:
        """A lease on a queued job, or None: stale attempt, leased, ended, unknown, or its run does not want it now."""
        run, number = split_job_id(job_id)
        word, *answer = self.call("jobs.claim", run, number=number, holder=(attempt, owner, _milliseconds(lease_s)))
        if word != "ok":
            return None
        view = job_view(run, answer[0])
        return Lease(view.job, attempt, owner, lease_s, view.created_ms, view.published_ms)

    def renew(self, lease: Lease) -> Directive:
        """Lengthens a lease to `lease_s` from now. Raises `LeaseLost`."""
        return self._directive("jobs.renew", lease)

    def count_work(self, lease: Lease, work: Effort) -> None:
        """Counts for the run what this attempt of the job has done so far, from its beginning on. Raises `LeaseLost`."""
        self._commit("jobs.count_work", lease, *astuple(work))

    def expire(self, run: str, max_attempts: int = MAX_ATTEMPTS) -> list[JobView]:
        """Ends every lease whose time is over and returns those jobs as they are now.

        Held games go to the front of the pool; the job is queued again under its next attempt, unpublished, or failed once
        `max_attempts` leases in a row ended badly and without a finished game.
        """
        _, answer = self.call("jobs.expire", run, max_attempts)
        return [job_view(run, item) for item in answer]

    def requeue(self, job_id: str, attempt: int) -> JobView:
        """Gives a job whose message was lost its next attempt, unpublished. Raises `NotFound`, or `StateConflict` if it was claimed."""
        return self._job_answer("jobs.requeue", job_id, attempt)

    def fail(self, lease: Lease, error: str, *, max_attempts: int = MAX_ATTEMPTS) -> None:
        """Gives the games back; the job is queued under its next attempt, or failed as `expire` says."""
        self._commit("jobs.fail", lease, error, max_attempts)

    # -- open games

    def adopt(self, lease: Lease, count: int) -> list[GameRecord]:
        """Exactly `count` games for a lease, from the pool first, then new ones; none while the run does not run. Raises `LeaseLost`.

        A record that does not decode is abandoned with the reason and left out.
        """
        _, *answer = self._commit("games.adopt", lease, max(0, count))
        return self._games(lease, answer)

    def adopt_named(self, lease: Lease, uids: Sequence[int]) -> list[GameRecord]:
        """Those of the games that lie in the pool, which the lease's owner has played already; otherwise as `adopt`. Raises `LeaseLost`."""
        _, *answer = self._commit("games.adopt_named", lease, *uids)
        return self._games(lease, answer)

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        """Writes the records of held games and renews the lease. Raises `LeaseLost`, also for a game that the lease does not hold."""
        return self._directive("games.journal", lease, *_by_uid(records))

    def replace_games(self, lease: Lease, events: Sequence[SampleEvent], count: int) -> tuple[Directive, list[GameRecord]]:
        """Closes games, appends their samples, renews the lease and adopts `count` others, in one step.

        Raises `LeaseLost`, also for a game that the lease does not hold: nothing of the call is committed then.
        """
        uids = [event.record.uid for event in events]
        if len(set(uids)) != len(uids):
            raise StateConflict("a game occurs twice among those to finish; finish each once")
        pairs = (item for uid, event in zip(uids, events, strict=True) for item in (uid, encode(event)))
        _, directive, *answer = self._commit("games.replace", lease, *pairs, max(0, count))
        return Directive(directive.decode()), self._games(lease, answer)

    def abandon(self, lease: Lease, uid: int, reason: str) -> None:
        """Closes a game that cannot be played on. Raises `LeaseLost`, also for a game that the lease does not hold."""
        self._commit("games.abandon", lease, uid, reason)

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        """Writes the last changes, gives all held games to the front of the pool and ends the job. Raises `LeaseLost`."""
        self._commit("games.release", lease, *_by_uid(records))

    def complete(self, lease: Lease, result: bytes, problem: str = "") -> None:
        """Appends a result frame to the run's results and ends the job, failed for good where there was a problem. Raises `LeaseLost`."""
        self._commit("games.complete", lease, result, problem)

    # -- the learner

    def take_learner(self, run: str, holder: str, life_s: float) -> LearnerLease:
        """The learner's place of a run; a dead holder loses it as soon as its death is seen. Raises `StateConflict`, `NotFound`."""
        token = 0

        def take(dead: str) -> str:
            nonlocal token
            word, *answer = self.call("learner.take", run, dead, keys.LEARNER_GROUP, holder=("", holder, _milliseconds(life_s)))
            if word == "held":
                return text_of(answer[0])
            token = int(answer[0])
            return holder

        if (now := take_place(take, holder)) != holder:
            raise StateConflict(f"another learner ({spoken(now)}) trains run {run}; stop it first")
        return LearnerLease(run, holder, token, life_s)

    def renew_learner(self, lease: LearnerLease) -> None:
        """Lengthens the learner's claim. Raises `StateConflict` where another took its place."""
        self._fenced("learner.renew", lease.run, lease, keys.LEARNER_GROUP, life_ms=_milliseconds(lease.life_s))

    def end_learner(self, lease: LearnerLease) -> None:
        """Gives the place free, so that the next learner need not wait. Raises `StateConflict` where another took it."""
        self._fenced("learner.renew", lease.run, lease, life_ms=0)

    def record_inserted(
        self,
        run: str,
        inserted: int,
        duplicates_dropped: int,
        *,
        ack: Sequence[str] = (),
        refused: Mapping[int, str] | None = None,
        lease: LearnerLease | None = None,
    ) -> None:
        """Notes how many games the segment log holds: absolute numbers, safe to repeat. Raises `NotFound`, `StateConflict`.

        With the ids of sample entries in `ack` these are acknowledged and deleted in the same step, so that the counts balance at
        every moment. `refused` (uid -> reason) names finished games that break the rules: they are abandoned instead. `lease` is the
        learner's; None before the run ever had a learner.
        """
        pairs = [part for uid, reason in (refused or {}).items() for part in (uid, reason)]
        values = (inserted, duplicates_dropped, keys.LEARNER_GROUP, len(pairs) // 2, *pairs, *ack)
        self._fenced("learner.record_inserted", run, lease, *values)

    def restore(self, run: str, stored: int, highest: int, missing: Sequence[tuple[int, int]], lease: LearnerLease | None = None) -> int:
        """Lets the run go on from a log of `stored` games up to number `highest`; returns how many games were written off.

        `missing`: spans (first, last) of numbers that are neither in the log nor on their way there. Raises `StateConflict`, `NotFound`.
        """
        spans = [edge for span in missing for edge in span]
        return int(self._fenced("learner.restore", run, lease, stored, highest, *spans)[0])

    def abandon_reason(self, run: str) -> str:
        """Why one of a run's games was abandoned; empty where none was."""
        with translate(self.client):
            entry: Any = self.client.hrandfield(keys.abandoned(run), 1, True)
        return text_of(entry[1]) if entry else ""

    def open_uids(self, run: str) -> set[int]:
        with translate(self.client):
            names: Any = self.client.hkeys(keys.open_games(run))
        return {int(name) for name in names}

    def announce_weights(self, run: str, frame: bytes, lease: LearnerLease | None = None) -> None:
        """Appends a `WeightEvent` frame to the run's weights. Raises `NotFound`, or `StateConflict` where another took over."""
        self._fenced("learner.announce_weights", run, lease, frame)

    def _commit(self, command: str, lease: Lease, *arguments: Argument) -> list[Any]:
        run, number = split_job_id(lease.job.job_id)
        holder = (lease.attempt, lease.owner, _milliseconds(lease.lease_s))
        answer = self.call(command, run, *arguments, number=number, holder=holder)
        if answer[0] == "lost":
            game = f", or never held game {text_of(answer[1])}" if len(answer) > 1 else ""
            raise LeaseLost(f"{lease.owner} lost job {lease.job.job_id}, attempt {lease.attempt}{game}; nothing was committed")
        return answer

    def _games(self, lease: Lease, answer: Sequence[bytes]) -> list[GameRecord]:
        games = []
        for uid, frame in zip(answer[::2], answer[1::2], strict=True):
            try:
                games.append(decode(frame, GameRecord) if frame else GameRecord(int(uid)))
            except WireError as error:
                self.abandon(lease, int(uid), f"record does not decode: {error}")
        return games

    def _directive(self, command: str, lease: Lease, *arguments: Argument) -> Directive:
        return Directive(self._commit(command, lease, *arguments)[1].decode())

    def _job_answer(self, command: str, job_id: str, attempt: int | str = "") -> JobView:
        run, number = split_job_id(job_id)
        word, *answer = self.call(command, run, number=number, holder=(attempt, "", ""))
        if word == "conflict":
            raise StateConflict(f"job {job_id} is {text_of(answer[0])}; nothing was changed")
        return job_view(run, answer[0])

    def _fenced(self, command: str, run: str, lease: LearnerLease | None, *arguments: Argument, life_ms: int | str = "") -> list[Any]:
        token, holder = (lease.token, lease.holder) if lease else (0, "")
        word, *answer = self.call(command, run, *arguments, holder=(token, holder, life_ms))
        if word == "superseded":
            other = spoken(text_of(answer[0]))
            raise StateConflict(f"another learner ({other}) took over run {run}; nothing was committed; stop one of them")
        return answer


def _milliseconds(lease_s: float) -> int:
    """A lease's length, at least one millisecond."""
    return max(1, round(lease_s * 1000))


def _by_uid(records: Iterable[GameRecord]) -> list[int | bytes]:
    return [item for record in records for item in (record.uid, encode(record))]
