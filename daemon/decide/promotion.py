"""Which version serves: what an operator requests, and what matches of a candidate against the best say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from azq.bus.promotions import before, best, candidate, judged, pinned, served
from azq.config import ArenaConfig
from azq.errors import StateConflict
from azq.ledger.types import JobState, RunState
from azq.ratings.matches import is_trial, job_of, split
from azq.stats import sequential_test
from azq.status.state import ObservedRun
from azq.status.workers import slots_of
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import Deed, MatchResult, MatchSpec, PromotionEvent
from azq.wire.parts import opponents, spec_of
from daemon.decide import actions as do
from daemon.decide.actions import Action
from daemon.decide.rounds import ERROR_RATE, SEED_LIMIT, Arena

PROMOTION_SHARE = 0.55  # of the points against the best (Silver et al. 2017, Methods)
PROMOTION_ELO = 0.0, 50.0  # of a candidate over the best, as elo0 and elo1 of the sequential test

Command = Literal["promote", "rollback", "pin", "unpin"]


def resolve(run: str, command: Command, version: int, events: Sequence[PromotionEvent], *, gated: bool, newest: int) -> tuple[Deed, int]:
    """What a command means for a run; where its versions are not promoted (`gated`), only a pin keeps the newest from serving.

    Raises `StateConflict` for a command that the run's promotions forbid.
    """
    held = pinned(events)
    if command == "unpin" and not held:
        raise StateConflict(f"no version of run {run} is pinned; it follows {'the best' if gated else 'the newest'}")
    if command == "rollback":
        version = before(served(events), best(events)) if gated else (held or newest) - 1
        if version < 1:
            raise StateConflict(f"run {run} has no earlier version to go back to; `azq weights pin {run} VERSION` names any")
    if gated and held and command in ("promote", "rollback"):
        raise StateConflict(f"version {held} of run {run} is pinned; `azq weights unpin {run}` first")
    if command == "unpin":
        return "unpinned", held
    if command == "pin" or not gated:
        return "pinned", version
    return ("promoted" if command == "promote" else "rolled_back"), version


def next_promotions(arena: Arena) -> list[Action]:
    """What to do about a running run's newest version and its best: nothing while one is pinned.

    The newest version is tried against the best; those that come meanwhile wait until that is decided, and the newest of them is next.
    All of it follows from the run's promotions, results and jobs, so any later tick goes on where this one stopped.
    """
    seen, settings = arena.seen, arena.sections.arena
    events, running = seen.promotions, arena.run.state is RunState.RUNNING
    if not (running and settings.promotes and seen.weight_version) or pinned(events):
        return []
    if not (now := best(events)):
        return [_promote(arena, seen.first_version, "promoted", "the first")]
    tried = candidate(events)
    if not tried:
        newer = seen.weight_version > judged(events)
        return [_promote(arena, seen.weight_version, "candidate", f"against version {now}")] if newer else []
    parts = trial(settings, arena.sections.run.seed, tried, now)
    results = {part.spec: part for match in seen.matches for part in match.parts}
    # up to the first that is missing: which part ends soonest must not say who is better
    played = [results[part] for part in takewhile(results.__contains__, parts)]
    if verdict := judge(settings, played, sum(part.games for part in parts[len(played) :])):
        return [_promote(arena, tried, *verdict), *_left_over(seen, ())]
    return [*_left_over(seen, parts), *_missing(arena, [part for part in parts if part not in results])]


def _promote(arena: Arena, version: int, deed: Deed, reason: str) -> do.Promote:
    return do.Promote(arena.run.name, PromotionEvent(version, deed, reason, "daemon", arena.now_ms), arena.seen.promotions_id)


def trial(arena: ArenaConfig, run_seed: int, tried: int, now: int) -> list[MatchSpec]:
    """The match of a candidate against the best, in parts of at most `arena.games` games."""
    seed = (run_seed * 1_000_003 + tried * 1_009 + now * 10_007 + SEED_LIMIT // 2) % SEED_LIMIT
    players = f"weights:{tried}", f"weights:{now}"
    return split(MatchSpec(*players, arena.promotion_games, arena.num_simulations, arena.opening_plies, seed, trial=True), arena.games)


def judge(arena: ArenaConfig, played: Sequence[MatchResult], left: int) -> tuple[Deed, str] | None:
    """What became of a candidate by its matches and why, with so many games `left`; None: not decided yet."""
    wins, draws, losses = (sum(getattr(match, name) for match in played) for name in ("wins", "draws", "losses"))
    games, seats = wins + draws + losses, max((1 + opponents(match) for match in played), default=2)
    score = f"{wins} won, {draws} drawn, {losses} lost"
    if arena.promotion == "sprt":
        test = sequential_test(wins, draws, losses, *PROMOTION_ELO, ERROR_RATE, ERROR_RATE, seats)
        if test.verdict != "open":
            return "promoted" if test.verdict == "accepted" else "rejected", f"{score}: LLR {test.llr:.2f}"
        return None if left else ("rejected", f"{score}: LLR {test.llr:.2f} decides nothing")
    points = sum(match.score * match.games for match in played)
    needed = _threshold(seats) * (games + left)
    if points >= needed and games:
        return "promoted", score
    return ("rejected", score) if points + left < needed or not left else None


def _left_over(seen: ObservedRun, parts: Sequence[MatchSpec]) -> list[Action]:
    """Queued parts whose results are not needed any more."""
    queued = [view.job for view in seen.jobs if view.state is JobState.QUEUED and is_trial(view.job)]
    return [do.CancelQueued(job.job_id) for job in queued if spec_of(job) not in parts]


def _missing(arena: Arena, parts: Sequence[MatchSpec]) -> list[Action]:
    """Jobs for parts without a result, on half of the slots: self-play wants the others."""
    queue = queue_name(Kind.EVAL, arena.tag)
    if not (slots := slots_of(arena.offers, queue)):
        return [do.unroutable(arena.run.name, queue, arena.offers)]
    queued = [spec_of(view.job) for view in arena.seen.jobs if is_trial(view.job)]
    room = max(0, max(1, slots // 2) - len(queued))
    missing = [part for part in parts if part not in queued][:room]
    return [do.EnqueueJob(job_of(arena.run.name, arena.tag, part)) for part in missing]


def _threshold(seats: int) -> float:
    """The share of first places, among so many seats, of one who makes `PROMOTION_SHARE` of the points against one other."""
    return PROMOTION_SHARE / (PROMOTION_SHARE + (seats - 1) * (1 - PROMOTION_SHARE))
