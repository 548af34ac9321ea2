"""Plays and trains for some seconds on this machine, each side alone and both at once: what `rates.py` makes a run's rates of."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from azq.bench.rig import rig, rules
from azq.bench.selfplay import played
from azq.config import Config, RunSections
from azq.errors import EvaluationTimeout
from azq.estimate.lengths import GameSize
from azq.estimate.memory import PARAMETER_BYTES, Need, tree_bytes
from azq.estimate.rates import AtOnce, Side, TwoSides
from azq.estimate.training import WARM_UP, learner
from azq.metrics import RESIDENT_BYTES
from azq.process.proc import machine_busy_s, usable_cores, usage
from azq.replay.samples import Columns
from azq.replay.window import Window
from azq.search.search import exploring, largest_budget, make_cache, make_search

if TYPE_CHECKING:
    from azq.games import Game
    from azq.host.devices import DevicePlan

SELFPLAY_SHARE, LEARNER_SHARE, BOTH_SHARE = 0.35, 0.15, 0.25  # of the time; the rest starts processes and warms them up


class Measurement(NamedTuple):
    """What was measured, and what stood beside it."""

    measured: TwoSides
    resident_bytes: int  # of all programs, with next to nothing in window and trees
    others_cores: float | None  # that other programs took meanwhile; None: unknown


def needs_of(sections: RunSections, plan: DevicePlan, size: GameSize | None) -> list[Need]:
    """What a run takes of memory at worst, told without taking it."""
    game, learner, selfplay = rules(sections), sections.learner, sections.selfplay
    window = Window(game, 1, Columns.of(game, sections.network.auxiliary))
    games, cache = selfplay.games_in_flight, make_cache(game, 1)
    entries = selfplay.cache_entries * plan.processes
    found = [
        Need("the window of samples", learner.max_window * (window.bytes_per_sample + 4), "learner.max_window", learner.max_window),
        Need("trees of games in flight", games * plan.processes * _tree_bytes(game, sections), "selfplay.games_in_flight", games),
        Need("the evaluation cache", entries * (cache.memory_bytes if cache else 0), "selfplay.cache_entries", selfplay.cache_entries),
    ]
    if size:
        waiting = selfplay.max_waiting_games
        found.append(Need("games that wait in the broker", int(waiting * size.record_bytes), "selfplay.max_waiting_games", waiting))
    return [*found, Need("the network with its optimizer", _network_bytes(game, sections), "", 0)]


def _tree_bytes(game: Game, sections: RunSections) -> int:
    """A tree of the largest budget of the run: what the core reserves for one, else by the formula."""
    largest = sections.search.model_copy(update={"num_simulations": largest_budget(sections.search)})
    reserved = make_search(game, exploring(largest), num_slots=1, seed=0).memory_bytes
    return reserved or tree_bytes(largest.num_simulations, game.num_distinct_actions())


def _network_bytes(game: Game, sections: RunSections) -> int:
    from azq.nets import NetSpec, build

    sizes = [sections.network, *(sections.network.model_copy(update=_size(stage)) for stage in sections.learner.growth)]
    parameters = sum(parameter.numel() for parameter in build(sizes[-1], NetSpec.of(game), seed=0).parameters())
    return parameters * PARAMETER_BYTES * max(1, sections.learner.ranks)


def _size(stage: object) -> dict[str, int]:
    return {name: getattr(stage, name) for name in ("blocks", "channels")}


def measure(config: Config, plan: DevicePlan, size: GameSize | None, seconds: float, say: Callable[[str], None]) -> Measurement:
    """Self-play with the run's network and search, training, and both at once; raises `EvaluationTimeout` where nothing came of it."""
    sections, began = config.run_sections(), WorkMoment.now()
    evaluator, alone_s, both_s = plan.evaluator, seconds * SELFPLAY_SHARE, seconds * BOTH_SHARE
    with rig(config, sections, inference=evaluator == "stream") as machine, learner(sections) as training:
        say(f"plays {sections.run.game} for {alone_s:.0f} s")
        done, spent_s, _ = played(machine, evaluator, alone_s, plan.processes)
        if not done["plies"]:
            raise EvaluationTimeout(f"no ply of {sections.run.game} was searched to its end in the time; give --seconds {8 * seconds:.0f}")
        say(f"trains for {seconds * LEARNER_SHARE:.0f} s")
        trained = training.begin(seconds * LEARNER_SHARE)()
        say(f"does both for {both_s:.0f} s")
        meanwhile = training.begin(both_s)
        beside, _, _ = played(
            machine, evaluator, both_s, plan.processes, both_s * WARM_UP
        )  # as long as training, so that both sides begin to count together
        steps_per_s = meanwhile().per_s
        resident = sum(int(usage(pid).get(RESIDENT_BYTES, 0)) for pid in (os.getpid(), *machine.pids, training.pid))
    of_ply = size.samples / size.plies if size else 1.0
    samples = done["plies"] * of_ply
    found = TwoSides(
        cores=usable_cores(),
        selfplay=Side(samples / done["wall_s"], spent_s / samples),
        learner=trained,
        evaluations=done["evaluations"] / samples,
        simulations=done["simulations"] / samples,
        game_samples=size.samples if size else None,
        game_bytes=size.record_bytes if size else None,
        one_device=bool(set(plan.inference) & set(plan.training) - {"cpu"}),
        at_once=AtOnce(beside["plies"] * of_ply / beside["wall_s"], steps_per_s) if beside["plies"] else None,
    )
    return Measurement(found, resident, began.others(WorkMoment.now()))


class WorkMoment(NamedTuple):
    """A moment: of the wall clock, of the CPU of this process and its children that ended, and of the whole machine's."""

    wall_s: float
    own_s: float
    machine_s: float | None

    @classmethod
    def now(cls) -> WorkMoment:
        return cls(time.monotonic(), sum(os.times()[:4]), machine_busy_s())

    def others(self, later: WorkMoment) -> float | None:
        """Cores that other programs took until then; None where nobody can tell."""
        if self.machine_s is None or later.machine_s is None:
            return None
        spent_s = later.machine_s - self.machine_s - (later.own_s - self.own_s)
        return max(0.0, spent_s / (later.wall_s - self.wall_s))
