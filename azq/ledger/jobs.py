"""Jobs on the control plane: enqueued, claimed, renewed, ended."""

from __future__ import annotations

from azq.errors import NotFound, StateConflict
from azq.ledger.answers import job_view, new_job, spelt, split_job_id
from azq.ledger.door import ScriptDoor, first_answer
from azq.ledger.rules import KEPT_ENDED_JOBS, lease_ms
from azq.ledger.types import Directive, Job, JobView, Lease, Once


class LedgerJobs(ScriptDoor):
    """The ledger's methods about jobs."""

    def enqueue(self, job: Job) -> JobView:
        """A new job, whose id the ledger gives: queued, attempt 1, not yet published. Raises `NotFound` for an unknown run."""
        return self.enqueue_once(None, job)[0]

    def enqueue_once(self, once: Once | None, job: Job) -> tuple[JobView, bool]:
        """A new job, or what the first request under this key enqueued, and whether it is that. Raises also `KeyReused`."""
        self.pin(job.run, once)
        word, *answer = self.call("jobs.enqueue", job.run, once.fingerprint if once else "", *spelt(job), once=once)
        if word == "missing":
            raise self.no_run(job.run)
        first = first_answer(word, answer)
        return (new_job(job.run, first), True) if first is not None else (job_view(job.run, answer[0]), False)

    def first_job(self, run: str, once: Once | None) -> JobView | None:
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

    def jobs(self, run: str | None = None, *, active_only: bool = True, limit: int = 1000) -> list[JobView]:
        """At most `limit` queued and leased jobs, longest published first; then, if asked for, at most `limit` ended ones, newest first."""
        views: list[JobView] = []
        for name in [run] if run is not None else self.names():
            _, answer = self.call("jobs.list", name, int(not active_only), max(1, limit))
            views += [job_view(name, item) for item in answer]
        return views

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
        word, *answer = self.call("jobs.claim", run, number=number, holder=(attempt, owner, lease_ms(lease_s)))
        return Lease(job_view(run, answer[0]).job, attempt, owner, lease_s) if word == "ok" else None

    def renew(self, lease: Lease) -> Directive:
        """Lengthens a lease to `lease_s` from now. Raises `LeaseLost`."""
        return self.directive("jobs.renew", lease)

    def expire(self, run: str, max_attempts: int) -> list[JobView]:
        """Ends every lease whose time is over and returns those jobs as they are now.

        Held games go to the front of the pool; the job is queued again under its next attempt, unpublished, or failed once
        `max_attempts` leases in a row ended badly and without a finished game.
        """
        _, answer = self.call("jobs.expire", run, max_attempts)
        return [job_view(run, item) for item in answer]

    def requeue(self, job_id: str, attempt: int) -> JobView:
        """Gives a job whose message was lost its next attempt, unpublished. Raises `NotFound`, or `StateConflict` if it was claimed."""
        return self._job_answer("jobs.requeue", job_id, attempt)

    def fail(self, lease: Lease, error: str, *, max_attempts: int = 4) -> None:
        """Gives the games back; the job is queued under its next attempt, or failed as `expire` says."""
        self.commit("jobs.fail", lease, error, max_attempts)

    def _job_answer(self, command: str, job_id: str, attempt: int | str = "") -> JobView:
        run, number = split_job_id(job_id)
        word, *answer = self.call(command, run, number=number, holder=(attempt, "", ""))
        if word == "missing":
            raise NotFound(f"no job {job_id}; only the newest {KEPT_ENDED_JOBS} ended jobs of a run are kept")
        if word == "conflict":
            raise StateConflict(f"job {job_id} is {answer[0].decode()}; nothing was changed")
        return job_view(run, answer[0])
