"""The self-play slice: plays games under one lease until its time is over, and loses none whatever happens.

One thread steps all groups in turn. Everything that leaves this process goes through the ledger in single atomic steps,
so the worst that a dead process, broker or inference worker costs is the search since the last journal write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from azq import logs
from azq.actor.groups import Arenas, GameGroup
from azq.actor.lease import HeldLease
from azq.actor.progress import Progress, counts_of
from azq.actor.slice import Moment, Slice, Stop, next_group, why_stop
from azq.actor.traced import TracedGames
from azq.clock import now_ms, now_ns
from azq.errors import (
    BrokerError,
    EvaluationRefused,
    EvaluationTimeout,
    EvaluatorFailure,
    GameContractError,
    IllegalActionError,
    LeaseLost,
    WireError,
)
from azq.ledger import Ledger
from azq.ledger.types import Directive, Effort
from azq.phases import Phases
from azq.search.evaluator import Evaluation, Evaluator
from azq.search.search import Record, leaves_at_once
from azq.wire.arrays import outgrown, pack_record
from azq.wire.messages import LATEST, GameRecord, SampleEvent

POLL_S = 0.1  # a stop is noticed within this time while waiting for an evaluation
ASK_AGAIN_S = 1.0  # after a failed evaluation, and after the ledger had no more games
STALL_LOOK_S = 0.25  # between questions to the ledger whether the limiter still holds self-play back
NEXT_WEIGHTS_S = 0.1  # after it had none in lockstep
REPORT_S = 0.5
HASTE_S = 0.5  # before the first journal write, twice as long before each next: a move on disk clears a game of suspicion

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class SliceEnd:
    """How a slice ended and what it did."""

    stop: Stop
    progress: Progress
    detail: str = ""


class SelfPlay:
    """Plays one slice of one self-play job.

    `phases` says where its time goes; `should_stop()` is asked some ten times a second; `report(progress)` is called about twice a second.
    """

    def __init__(
        self,
        ledger: Ledger,
        part: Slice,
        evaluator: Evaluator,
        arenas: Arenas,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        report: Callable[[Progress], None] = lambda progress: None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        phases: Phases | None = None,
    ) -> None:
        self._phases = phases or Phases()
        self._lease = part.lease
        self._limits = part.limits
        self._evaluator = evaluator
        self._traced = TracedGames(part.lease, part.made_ms, evaluator)
        self._arenas = arenas
        self._should_stop = should_stop
        self._report = report
        self._clock = clock
        self._wait = wait or threading.Event().wait
        self._held = HeldLease(ledger, part.lease, should_stop=should_stop, clock=clock, wait=self._wait)
        searches = arenas.searches(part.game, part.sections, part.games, (part.lease.job.run, part.made_ms))
        leaves = leaves_at_once(part.sections.search, part.game)
        self._groups = [GameGroup(search, part.game, leaves) for search in searches]
        self._width, self._forks, self._game = arenas.width, arenas.forks, part.game
        self._base = counts_of(searches)  # the searches outlive slices
        self._progress = Progress()
        self._started_s = self._evaluated_s = self._journaled_s = clock()
        self._reported_s = self._fill_after_s = self._submit_after_s = 0.0
        self._journal_s = min(HASTE_S, self._limits.journal_s)
        self._version_for = part.sections.learner.version_for
        self._weight_version = LATEST  # that all open games are played with
        self._to_journal = 0
        self._stalled_s = 0.0

    def run(self) -> SliceEnd:
        """Plays until there is a reason to stop, then gives every open game back; errors of azq's own making propagate."""
        detail = ""
        try:
            stop = self._play()
            self._give_back()
        except LeaseLost as error:
            stop, detail = Stop.LEASE_LOST, str(error)
        except BrokerError as error:
            stop, detail = Stop.BROKER_LOST, str(error)
        except BaseException:
            self._arenas.forget()  # their state is unknown
            raise
        self._traced.end()
        for group in self._groups:
            group.drop()
        self._report_progress()
        self._log_end(stop, detail)
        return SliceEnd(stop, self._progress, detail)

    def _play(self) -> Stop:
        for group in self._groups:
            self._replace(group)
        self._evaluated_s = self._clock()
        turn = 0
        while (stop := self._tick()) is None:
            if self._held.directive is Directive.STALL:
                self._hold()
                continue
            group = self._groups[turn]
            if group.leaves and not self._receive(group):
                continue
            self._advance(group)
            turn = next_group(turn, len(self._groups))
        return stop

    def _hold(self) -> None:
        """Takes in what is on its way, writes down what is not yet, and waits a moment for the limiter."""
        waiting = [group for group in self._groups if group.handle is not None]
        if [group for group in waiting if not self._receive(group)]:
            return
        for group in self._groups:
            self._replace(group, adopting=False)
        began = self._clock()
        with self._phases("ledger"):
            self._held.journal([record for group in self._groups for record in group.changed()])
        if self._held.directive is Directive.STALL:
            self._wait(STALL_LOOK_S)
        self._evaluated_s = self._journaled_s = self._clock()
        self._stalled_s += self._evaluated_s - began

    def _tick(self) -> Stop | None:
        """Between any two steps: renew the lease by journaling when due, report progress, and look for a reason to stop."""
        now = self._clock()
        if now - self._journaled_s >= self._journal_s / len(self._groups):
            self._journaled_s = now
            self._journal()
        if now - self._reported_s >= REPORT_S:
            self._reported_s = now
            self._report_progress()
        moment = Moment(
            now_s=now,
            started_s=self._started_s,
            evaluated_s=self._evaluated_s,
            stopping=self._should_stop(),
            directive=self._held.directive,
            open_games=self._progress.open_games,
            stalled_s=self._stalled_s,
        )
        return why_stop(moment, self._limits)

    def _journal(self) -> None:
        """Writes the next group's moves; by turns, for nothing is searched meanwhile and the evaluator shall not run dry."""
        self._held.done = self._work()
        with self._phases("ledger"):
            self._held.journal(self._groups[self._to_journal].changed())
        self._to_journal = next_group(self._to_journal, len(self._groups))
        if self._to_journal == 0:
            self._journal_s = min(2 * self._journal_s, self._limits.journal_s)

    def _advance(self, group: GameGroup) -> None:
        """Commits what ended, starts what there is room for, searches to the next leaves and sends them off."""
        self._search(group)
        self._abandon_broken(group)
        if not group.leaves and group.search.finished_slots():
            self._search(group)
        if group.leaves:
            self._submit(group)
        elif not any(other.leaves for other in self._groups):
            with self._phases("wait"):
                self._wait(POLL_S / 10)  # nothing anywhere can move until the ledger gives games

    def _search(self, group: GameGroup) -> None:
        self._replace(group)
        with self._phases("search"):
            group.advance()

    def _submit(self, group: GameGroup) -> None:
        try:
            with self._phases("transport"):
                group.submit(self._evaluator, self._clock(), self._weight_version)
        except (EvaluatorFailure, EvaluationTimeout, BrokerError) as error:
            self._ask_again(group, error)

    def _receive(self, group: GameGroup) -> bool:
        """Waits a moment for the group's evaluations and applies them; False where they are not there yet."""
        if group.handle is None:
            if self._clock() >= self._submit_after_s:
                self._submit(group)
            else:
                with self._phases("wait"):
                    self._wait(POLL_S)
            return False
        handle = group.handle
        evaluation = self._result(group, handle)
        if evaluation is None:
            return False
        self._evaluated_s = self._clock()
        after_s = self._evaluated_s - group.submitted_s
        self._traced.evaluated(group, handle, after_s, evaluation)
        self._progress.answered(after_s, evaluation.weight_version)
        self._width.answered(group.games, after_s)
        with self._phases("search"):
            self._progress.evaluations += group.apply(evaluation)
        return True

    def _result(self, group: GameGroup, handle: int) -> Evaluation | None:
        began = self._clock()
        try:
            with self._phases("wait"):
                evaluation = self._evaluator.result(handle, timeout_s=POLL_S)
            if evaluation is not None:
                group.check(evaluation)
            return evaluation
        except EvaluationRefused:
            raise  # the job fails with the reason: these games meet the same leaves again
        except (EvaluatorFailure, EvaluationTimeout, BrokerError, WireError) as error:
            self._ask_again(group, error)
            return None
        finally:
            self._progress.waited_s += self._clock() - began

    def _ask_again(self, group: GameGroup, error: Exception) -> None:
        group.handle = None
        self._submit_after_s = self._clock() + ASK_AGAIN_S
        log.warning("evaluation_failed", job=self._lease.job.job_id, reason=str(error), leaves=group.leaves)

    def _replace(self, group: GameGroup, adopting: bool = True) -> None:
        """Commits the games that ended and adopts one for every free slot; a record that does not replay is abandoned by name."""
        group.clear_outgrown()
        events = [event for record in group.finished() if (event := self._event(record)) is not None]
        room = self._room(group) if adopting and self._clock() >= self._fill_after_s else []
        if not events and not room:
            return
        began_ns = now_ns()
        with self._phases("ledger"):
            records = self._held.replace(events, len(room))
        self._traced.finish((event.record.uid for event in events), began_ns)
        group.clear_finished()
        for event in events:
            self._forks.keep(event.record)
        self._progress.games += len(events)
        self._progress.open_games += len(records) - len(events)
        self._weight_version = self._version_for(records[0].uid) if records else self._weight_version
        for slot, record in zip(room, records, strict=False):
            self._traced.begin(record, group)
            try:
                group.start(slot, self._forks.begin(self._game, record))
            except (WireError, IllegalActionError, GameContractError) as error:
                self._abandon(record.uid, str(error))
        if len(records) < len(room):
            self._fill_after_s = self._clock() + (NEXT_WEIGHTS_S if self._limits.waits else ASK_AGAIN_S)

    def _room(self, group: GameGroup) -> list[int]:
        """Slots for which games are wanted now."""
        room = group.room()
        held = group.search.num_slots - len(room)
        return room[: max(0, self._width.games(group.search.num_slots) - held)]

    def _event(self, record: Record) -> SampleEvent | None:
        """The sample event of a game that ended; None, and the game abandoned, where that is too long to be sent."""
        packed = pack_record(record)
        if reason := outgrown(packed):
            self._abandon(packed.uid, reason)
            return None
        returns = tuple(float(value) for value in record.returns)
        return SampleEvent(packed, returns, self._lease.owner, now_ms())

    def _abandon_broken(self, group: GameGroup) -> None:
        """A game whose rules raised, or whose record outgrew a message, costs itself and nothing else."""
        for uid, reason in group.take_broken():
            self._abandon(uid, reason)

    def _abandon(self, uid: int, reason: str) -> None:
        self._progress.abandoned += 1
        self._progress.open_games -= 1
        self._held.abandon(uid, reason)
        log.error("game_abandoned", run=self._lease.job.run, uid=uid, reason=reason)

    def _give_back(self) -> None:
        records: list[GameRecord] = []
        for group in self._groups:
            self._replace(group, adopting=False)
            records += group.changed()
            self._abandon_broken(group)
        self._held.done = self._work()
        with self._phases("ledger"):
            self._held.release(records)

    def _work(self) -> Effort:
        self._progress.searched = counts_of([group.search for group in self._groups]) - self._base
        return Effort(self._progress.searched["simulations"], self._progress.evaluations, self._progress.requests)

    def _report_progress(self) -> None:
        self._progress.searched = counts_of([group.search for group in self._groups]) - self._base
        self._progress.search_s = sum(group.search_s for group in self._groups)
        self._report(self._progress)

    def _log_end(self, stop: Stop, detail: str) -> None:
        facts = {
            "job": self._lease.job.job_id,
            "attempt": self._lease.attempt,
            "why": str(stop),
            "games": self._progress.games,
            "open": self._progress.open_games,
            "evaluations": self._progress.evaluations,
            "mean_batch": round(self._progress.mean_batch, 1),
        }
        if stop is Stop.STARVED:
            detail = f"no evaluation for {self._limits.patience_s:.0f} s; is an inference worker alive?"
        if detail:
            log.warning("slice_over", **facts, reason=detail)
        else:
            log.info("slice_over", **facts)
