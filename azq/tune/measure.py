"""Seconds of self-play in one arrangement, and of training alone, on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from azq.bench.rig import Rig, answer_of, changed, child
from azq.bench.selfplay import played
from azq.config import RunSections, dump_run, parse_run
from azq.errors import EvaluationTimeout
from azq.estimate.rates import Side
from azq.estimate.training import train_alone
from azq.tune.arrangement import Arrangement
from azq.tune.course import Performed

WARM_UP_SHARE = 0.25  # of a trial: processes begin, and the first games leave the position that all begin with
LEARNER_ALLOWANCE_S = 120.0  # beyond the time itself: torch is loaded and the window filled


def perform(machine: Rig, evaluator: str, arrangement: Arrangement, seconds: float) -> Performed | None:
    """So many seconds of self-play, the warm-up among them; None where they are too few to say anything."""
    sections = arranged(machine.sections, arrangement)
    warm_up_s = WARM_UP_SHARE * seconds
    try:
        done, spent_s, _ = played(replace(machine, sections=sections), evaluator, seconds - warm_up_s, arrangement.processes, warm_up_s)
    except EvaluationTimeout:
        return None
    if not done["simulations"] or not spent_s:
        return None
    wall_s, simulations = done["wall_s"], done["simulations"]
    return Performed(
        simulations_per_s=simulations / wall_s,
        cpu_s=spent_s / simulations,
        evaluations_per_s=done["evaluations"] / wall_s,
        mean_batch=done["evaluations"] / max(1.0, done["requests"]),
        open_games=done["open_games"],
    )


def arranged(sections: RunSections, arrangement: Arrangement) -> RunSections:
    """The settings with an arrangement in place of their own."""
    return changed(sections, **arrangement.sections())


def learner_side(sections: RunSections, seconds: float) -> Side:
    """Training alone, in a process of its own, whose threads are none of self-play's."""
    found: Mapping[str, float] = answer_of(child(learn_alone, sections=dump_run(sections), seconds=seconds), seconds + LEARNER_ALLOWANCE_S)
    return Side(**found)


def learn_alone(sections: dict[str, Any], seconds: float) -> dict[str, float]:
    """What that process does."""
    return asdict(train_alone(parse_run(sections, "the settings to tune"), seconds))
