"""Rules of a run's learner: one at a time, what it inserted, what it found to be no game."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from azq.errors import StateConflict
from azq.ledger.holder import spoken
from azq.ledger.rules.state import LearnerRow, State, lease_ms
from azq.ledger.types import LearnerLease

WRITTEN_OFF = "written off: the run went on from its folder, which does not hold this game"


def take_learner(state: State, now_ms: int, holder: str, life_s: float, dead: str) -> tuple[State, str]:
    """The learner's place where it is free, the holder's own, or held by one that is `dead`; and who holds it then.

    Each taking has a token above all before it, so that whoever lost the place can commit no more, however late it hears of that.
    """
    row = state.learner
    if row.until_ms > now_ms and row.holder not in (holder, dead):
        return state, row.holder
    return replace(state, learner=LearnerRow(holder, row.token + 1, now_ms + lease_ms(life_s))), holder


def renew_learner(state: State, now_ms: int, lease: LearnerLease) -> State:
    """Lengthens the learner's claim, also one that ran out unless it was taken over. Raises `StateConflict`."""
    check_learner(state, lease)
    return replace(state, learner=LearnerRow(lease.holder, lease.token, now_ms + lease_ms(lease.life_s)))


def end_learner(state: State, lease: LearnerLease) -> State:
    """Gives the place free at once. Raises `StateConflict`."""
    check_learner(state, lease)
    return replace(state, learner=LearnerRow(lease.holder, lease.token, 0))


def check_learner(state: State, lease: LearnerLease | None) -> None:
    """Raises `StateConflict` where another learner took this one's place; None is for runs that never had a learner.

    A control plane that lost its last moments may remember an earlier learner only, whose place was taken since: that one counts.
    """
    row, (token, holder) = state.learner, (lease.token, lease.holder) if lease else (0, "")
    if row.token > token or (row.token == token and row.holder != holder):
        raise StateConflict(superseded(state.record.run, row.holder))


def superseded(run: str, holder: str) -> str:
    """What a learner hears that lost its place."""
    return f"another learner ({spoken(holder)}) took over run {run}; nothing was committed; stop one of them"


def held_by(run: str, holder: str) -> str:
    """What a learner hears that finds its place taken."""
    return f"another learner ({spoken(holder)}) trains run {run}; stop it first"


def record_inserted(state: State, lease: LearnerLease | None, inserted: int, duplicates_dropped: int, refused: Mapping[int, str]) -> State:
    """Absolute numbers of the segment log; refused games are abandoned instead of finished. Raises `StateConflict`."""
    check_learner(state, lease)
    return replace(refuse(state, refused), inserted=inserted, duplicates_dropped=duplicates_dropped)


def restore(state: State, lease: LearnerLease | None, stored: int, highest: int, missing: Iterable[tuple[int, int]]) -> State:
    """The run goes on from a log of `stored` games, the highest number of which is `highest`. Raises `StateConflict`.

    `missing` are spans (first, last) of numbers that are neither in the log nor on their way there. Those that nobody plays are written
    off, and new games get numbers never used before: who still held an old game of a control plane that was lost has no lease in this
    one. Then all games that are neither open nor abandoned are finished, and the sums hold again.
    """
    check_learner(state, lease)
    opened = max(state.opened, highest)
    gone = {uid for first, last in missing for uid in range(first, last + 1)} - set(state.open) - set(state.abandoned)
    abandoned = {**state.abandoned, **dict.fromkeys(sorted(gone), WRITTEN_OFF)}
    finished = opened - len(state.open) - len(abandoned)
    return replace(
        state,
        opened=opened,
        finished=finished,
        inserted=stored,
        abandoned=abandoned,
        written_off=state.written_off + len(gone),
        restored=state.restored + 1,
    )


def refuse(state: State, reasons: Mapping[int, str]) -> State:
    """Finished games that the learner found to break the rules are abandoned instead; forged uids change nothing."""
    known = {**state.open, **state.abandoned}
    fresh = {uid: reason for uid, reason in reasons.items() if uid <= state.opened and uid not in known}
    return replace(state, finished=state.finished - len(fresh), abandoned={**state.abandoned, **fresh})
