"""The learner's place on the control plane, and what it commits from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from azq.errors import StateConflict
from azq.ledger.door import Argument, ScriptDoor
from azq.ledger.holder import take_place
from azq.ledger.rules import lease_ms
from azq.ledger.rules.learner import held_by, superseded
from azq.ledger.types import LearnerLease
from azq.wire import keys
from azq.wire.connect import translate


class LedgerLearner(ScriptDoor):
    """The ledger's methods about a run's learner."""

    def take_learner(self, run: str, holder: str, life_s: float) -> LearnerLease:
        """The learner's place of a run; a dead holder loses it as soon as its death is seen. Raises `StateConflict`, `NotFound`."""
        token = 0

        def take(dead: str) -> str:
            nonlocal token
            word, *answer = self.call("learner.take", run, dead, keys.LEARNER_GROUP, holder=("", holder, lease_ms(life_s)))
            if word == "missing":
                raise self.no_run(run)
            if word == "held":
                return bytes(answer[0]).decode()
            token = int(answer[0])
            return holder

        if (found := take_place(take, holder)) != holder:
            raise StateConflict(held_by(run, found))
        return LearnerLease(run, holder, token, life_s)

    def renew_learner(self, lease: LearnerLease) -> None:
        """Lengthens the learner's claim. Raises `StateConflict` where another took its place."""
        self._fenced("learner.renew", lease.run, lease, life_ms=lease_ms(lease.life_s))

    def end_learner(self, lease: LearnerLease) -> None:
        """Gives the place free, so that nobody waits for its life to run out. Raises `StateConflict` where another took it."""
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

    def open_uids(self, run: str) -> set[int]:
        """Numbers of the games that are open."""
        with translate(self.client):
            names: Any = self.client.hkeys(keys.open_games(run))
        return {int(name) for name in names}

    def announce_weights(self, run: str, frame: bytes, lease: LearnerLease | None = None) -> None:
        """Appends a `WeightEvent` frame to the run's weights. Raises `NotFound`, or `StateConflict` where another took over."""
        self._fenced("learner.announce_weights", run, lease, frame)

    def _fenced(self, command: str, run: str, lease: LearnerLease | None, *arguments: Argument, life_ms: int | str = "") -> list[Any]:
        token, holder = (lease.token, lease.holder) if lease else (0, "")
        word, *answer = self.call(command, run, *arguments, holder=(token, holder, life_ms))
        if word == "missing":
            raise self.no_run(run)
        if word == "superseded":
            raise StateConflict(superseded(run, bytes(answer[0]).decode()))
        return answer
