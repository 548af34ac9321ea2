"""Seconds of self-play in one arrangement on this machine."""

from __future__ import annotations

from dataclasses import replace

from azq.bench.rig import Rig, changed
from azq.bench.selfplay import played
from azq.config import RunSections
from azq.errors import EvaluationTimeout
from azq.tune.arrangement import Arrangement
from azq.tune.course import Performed

WARM_UP_SHARE = 0.25  # of a trial: processes begin, and the first games leave the position that all begin with


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
