"""Which evaluations a run needs now: rounds of matches, graded positions, and parts of matches that are not needed any more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from azq.config import RunConfig, RunSections
from azq.ledger.types import JobState, RunState
from azq.ratings.matches import is_trial, part_of, split
from azq.status.state import DesiredRun, ObservedRun, Offer
from azq.status.workers import eval_tag, slots_of
from azq.wire.kinds import BROWSER, Kind, queue_name
from azq.wire.messages import EvalRound, GradeSpec, MatchSpec
from azq.wire.parts import whole_of
from daemon.decide import actions as do
from daemon.decide.actions import Action

SETTLE_MS = 4_000  # a finished run's learner still publishes what it learned last; the final round is for those weights
SEED_LIMIT = 2**63
GAMES_PER_JOB = 100  # a longer match is played in parts of so many, by several workers at once
ERROR_RATE = 0.05  # of a sequential test, of taking elo0 for elo1 and the other way round
FIRST_POSITIONS = 50  # a few seconds of work: what a run begins with, so that its first figure of strength is there at once
FIRST_MS = 20_000  # of active time, when the first round is due; the next ones when it has doubled, until `arena.every_s` is shorter
TABS_MATCHES = queue_name(Kind.EVAL, BROWSER)


@dataclass(frozen=True, slots=True)
class Arena:
    """One run with all that its evaluations depend on."""

    run: DesiredRun
    sections: RunSections
    seen: ObservedRun
    offers: Sequence[Offer]
    now_ms: int
    has_positions: Callable[[RunConfig], bool]

    @property
    def finished(self) -> bool:
        return self.run.state is RunState.FINISHED

    @property
    def tag(self) -> str:
        """The hardware tag whose workers evaluate for this run."""
        return eval_tag(self.offers, self.sections.run.tag)

    def waited(self) -> bool:
        """Whether enough time since the last round has passed, less while the run is young, or enough steps have been trained."""
        every_s, every_steps, last = self.sections.arena.every_s, self.sections.arena.every_steps, self.seen.round
        waited_ms = self.now_ms - last.asked_ms if last.asked_ms else self.seen.active_ms
        before_ms = self.seen.active_ms - waited_ms  # how long the run had been active then
        pause_ms = min(1000 * every_s, max(FIRST_MS, 2 * before_ms) - before_ms)
        by_steps = every_steps > 0 and self.seen.weight_step - last.step >= every_steps
        return by_steps or (every_s > 0 and not 0 <= waited_ms < pause_ms)  # less than nothing: the clock was set back

    def asks(self, noted: EvalRound, specs: Sequence[MatchSpec | GradeSpec], for_tabs: Sequence[MatchSpec] = ()) -> do.EnqueueEval | None:
        """What to enqueue; None where there is nothing to play or to grade."""
        return do.EnqueueEval(self.run.name, self.tag, noted, tuple(specs), tuple(for_tabs)) if specs or for_tabs else None


def next_evaluation(arena: Arena) -> list[Action]:
    """The evaluation that is due now, or what keeps it from being asked for; nothing where none is due."""
    if arena.finished and 0 <= arena.now_ms - arena.run.changed_ms < SETTLE_MS:
        return []
    due = _round(arena)
    return [] if due is None else [_routed(due, arena.offers)]


def needless(seen: ObservedRun) -> list[Action]:
    """Queued parts of matches whose sequential test has come to its end."""
    over = {match.spec for match in seen.matches if match.test and match.test.verdict != "open"}
    queued = [view for view in seen.jobs if over and view.state is JobState.QUEUED]
    return [do.CancelQueued(view.job.job_id) for view in queued if (part := part_of(view.job)) and whole_of(part) in over]


def _routed(evaluation: do.EnqueueEval, offers: Sequence[Offer]) -> Action:
    queue = queue_name(Kind.EVAL, evaluation.tag)
    if slots_of(offers, queue) or not evaluation.specs:
        return evaluation
    return do.unroutable(evaluation.run, queue, offers)


def _round(arena: Arena) -> do.EnqueueEval | None:
    """The round that is due now, or None.

    Due: new weights since the last round, its time come (20, 40, 80 ... s of active time, then each `arena.every_s`) or `arena.every_steps`
    trained, no evaluation job outstanding.
    Where moves can be graded, the first weights are graded on a few positions as soon as a worker takes that.
    A finished run waits for no time: its last weights get their round as soon as self-play has given its games back.
    """
    settings, seen, last = arena.sections.arena, arena.seen, arena.seen.round
    if not settings.evaluates or seen.weight_version <= last.weight_version:
        return None
    if any(arena.finished or (view.job.kind == Kind.EVAL and not is_trial(view.job)) for view in seen.jobs):
        return None
    noted = replace(last, weight_version=seen.weight_version, asked_ms=arena.now_ms, step=seen.weight_step)
    begins = not (last.weight_version or arena.finished) and slots_of(arena.offers, queue_name(Kind.EVAL, arena.tag))
    if begins and (first := _grades(arena, most=FIRST_POSITIONS)):
        return arena.asks(noted, first)
    if not (arena.finished or arena.waited()):
        return None
    matches = _matches(arena)
    tabs = Kind.EVAL in arena.sections.volunteers.kinds and not arena.finished and slots_of(arena.offers, TABS_MATCHES)
    for_tabs = [match for match in matches if tabs and match.second.removeprefix("weights:").isdecimal()]
    parts = [part for match in matches if match not in for_tabs for part in split(match, GAMES_PER_JOB)]
    return arena.asks(noted, [*_grades(arena), *parts], for_tabs)  # what takes seconds goes first


def _matches(arena: Arena) -> list[MatchSpec]:
    settings, version, last = arena.sections.arena, arena.seen.weight_version, arena.seen.round.weight_version
    newest = f"weights:{version}"
    previous = f"weights:{last}" if last else newest
    opponents = [previous if opponent == "previous" else opponent for opponent in settings.opponents]
    sprt = (*settings.sprt, ERROR_RATE, ERROR_RATE) if settings.sprt else ()
    seeds = [_seed(arena.sections.run.seed, version, index) for index in range(len(opponents))]
    return [
        MatchSpec(newest, opponent, settings.games, settings.num_simulations, settings.opening_plies, seed, sprt=sprt)
        for seed, opponent in zip(seeds, opponents, strict=True)
        if opponent not in (newest, "latest")
    ]


def _grades(arena: Arena, most: int = SEED_LIMIT) -> list[GradeSpec]:
    settings, run = arena.sections.arena, arena.sections.run
    if settings.grade_positions == 0 or not arena.has_positions(run):
        return []
    # The same seed in every round: the same positions are graded, so the curve compares like with like.
    return [GradeSpec(arena.seen.weight_version, min(settings.grade_positions, most), settings.num_simulations, run.seed)]


def _seed(run_seed: int, version: int, index: int) -> int:
    return (run_seed * 1_000_003 + version * 1_009 + index) % SEED_LIMIT
