"""Evaluation rounds: which matches and graded positions the newest weights get, and when. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from azq.config import ArenaConfig, RunSections
from azq.status.queues import eval_tag, slots_of
from azq.status.state import ObservedRun, Offering
from azq.wire.kinds import Kind, queue_name
from azq.wire.messages import GradeSpec, MatchSpec
from daemon.decide.actions import EnqueueEval

SEED_LIMIT = 2**63
FIRST_POSITIONS = 50  # a few seconds of work: what a run begins with, so that its first figure of strength is there at once


def next_round(
    name: str,
    sections: RunSections,
    seen: ObservedRun,
    workers: Sequence[Offering],
    now_ms: int,
    has_positions: Callable[[str], bool],
    *,
    finished: bool,
) -> EnqueueEval | None:
    """The round that is due now, or None.

    Due: new weights since the last round, `arena.every_s` gone by (of active time before the first one), no evaluation job outstanding.
    Where moves can be graded, the first weights are graded on a few positions as soon as a worker takes that.
    A finished run waits for no time: its last weights get their round as soon as self-play has given its games back.
    """
    arena = sections.arena
    if arena.every_s == 0 or seen.weight_version <= seen.round_version:
        return None
    if any(finished or view.job.kind == Kind.EVAL for view in seen.jobs):
        return None
    tag = eval_tag(workers, sections.run.tag)
    begins = not (seen.round_version or finished) and slots_of(workers, queue_name(Kind.EVAL, tag))
    if begins and (first := _grade(sections, seen.weight_version, has_positions, most=FIRST_POSITIONS)):
        return EnqueueEval(name, tag, seen.weight_version, tuple(first))
    waited_ms = now_ms - seen.round_ms if seen.round_ms else seen.active_ms
    if waited_ms < arena.every_s * 1000 and not finished:
        return None
    specs: list[MatchSpec | GradeSpec] = [*_matches(arena, sections.run.seed, seen), *_grade(sections, seen.weight_version, has_positions)]
    return EnqueueEval(name, tag, seen.weight_version, tuple(specs)) if specs else None


def _matches(arena: ArenaConfig, seed: int, seen: ObservedRun) -> list[MatchSpec]:
    newest = f"weights:{seen.weight_version}"
    previous = f"weights:{seen.round_version}" if seen.round_version else newest
    opponents = [previous if opponent == "previous" else opponent for opponent in arena.opponents]
    return [
        MatchSpec(newest, opponent, arena.games, arena.num_simulations, arena.opening_plies, _seed(seed, seen.weight_version, index))
        for index, opponent in enumerate(opponents)
        if opponent not in (newest, "latest")
    ]


def _grade(sections: RunSections, version: int, has_positions: Callable[[str], bool], most: int = SEED_LIMIT) -> list[GradeSpec]:
    arena = sections.arena
    if arena.grade_positions == 0 or not has_positions(sections.run.game):
        return []
    # The same seed in every round: the same positions are graded, so the curve compares like with like.
    return [GradeSpec(version, min(arena.grade_positions, most), arena.num_simulations, sections.run.seed)]


def _seed(run_seed: int, version: int, index: int) -> int:
    return (run_seed * 1_000_003 + version * 1_009 + index) % SEED_LIMIT
