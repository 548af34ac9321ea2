"""Carries out what `reconcile` decided. A thin shell over ledger, bus and queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from azq import logs
from azq.bus.base import Bus
from azq.errors import NotFound, StateConflict
from azq.ledger import Ledger
from azq.ledger.types import JobView, RunState
from azq.ratings.matches import job_of
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import BROWSER
from daemon.decide import actions as do
from daemon.decide.actions import Action

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Hands:
    """What acting needs: the ledger, the control plane, and a way to hand a job to Celery."""

    ledger: Ledger
    bus: Bus
    publish: Callable[[JobView, str], None]
    games: Mapping[str, str] = field(default_factory=dict)  # of runs, by name


def act(decided: Sequence[Action], hands: Hands) -> None:
    """Does each action; one that the state forbids by now is logged and skipped. Raises `BrokerError`: try again later."""
    for action in decided:
        try:
            _do(action, hands)
        except (StateConflict, NotFound) as error:  # somebody was faster; the next look tells
            log.info("overtaken", action=type(action).__name__, reason=str(error))


def send(hands: Hands, view: JobView) -> None:
    """Publishes a job, then notes it: a crash in between publishes twice, which the claim makes harmless."""
    hands.publish(view, hands.games.get(view.job.run, ""))
    hands.ledger.mark_published(view.job.job_id, view.attempt)


def _do(action: Action, hands: Hands) -> None:
    match action:
        case do.PublishJob(view):
            send(hands, view)
        case do.EnqueueJob(job):
            send(hands, hands.ledger.enqueue(job))
        case do.EnqueueEval():
            _start_round(action, hands)
        case do.ExpireLeases(run):
            for view in hands.ledger.expire(run):
                log.warning("lease_expired", job=view.job.job_id, attempt=view.attempt, state=str(view.state), owner=view.owner)
        case do.RequeueLost(job_id, attempt):
            log.warning("message_lost", job=job_id, attempt=attempt)
            send(hands, hands.ledger.requeue(job_id, attempt))
        case do.CancelQueued(job_id):
            hands.ledger.cancel(job_id)
        case do.EndRun(run, state, reason, seen_ms):
            hands.ledger.set_run_state(run, state, reason, seen_ms)
            (log.error if state is RunState.FAILED else log.info)(f"run_{state}", run=run, reason=reason)
        case do.Promote():
            _promote(action, hands)
        case do.Condition() | do.EndFleet():
            pass  # conditions, not deeds: the loop keeps, logs and tells them


def _promote(action: do.Promote, hands: Hands) -> None:
    stream, event = keys.promotions(action.run), action.event
    (newest,) = hands.bus.newest_each([stream])
    if (newest.id if newest else "0") != action.after:
        raise StateConflict(f"somebody else decided about the versions of run {action.run}")
    hands.bus.publish(stream, encode(event))
    log.info(f"weights_{event.deed}", run=action.run, version=event.version, reason=event.reason)


def _start_round(action: do.EnqueueEval, hands: Hands) -> None:
    # Noted first: a crash in between costs a round, the reverse order would ask for one twice.
    hands.bus.put(keys.eval_round(action.run), encode(action.noted))
    specs = [*((action.tag, spec) for spec in action.specs), *((BROWSER, spec) for spec in action.for_tabs)]
    for tag, spec in specs:
        send(hands, hands.ledger.enqueue(job_of(action.run, tag, spec)))
    log.info("evaluation_round", run=action.run, weight_version=action.noted.weight_version, jobs=len(specs))
