"""Plays and trains for some seconds on this machine, each side alone and both at once: what `rates.py` makes a run's rates of."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from azq.actor.groups import GameGroup
from azq.clock import now_ms
from azq.config import Config, RunSections, dump_run, parse_run
from azq.errors import EvaluationTimeout
from azq.metrics import RESIDENT_BYTES
from azq.parts.lab.bench.rig import PartProcess, answer_line, in_turns, rig, rules
from azq.parts.lab.bench.selfplay import played
from azq.parts.lab.calibrate.rates import PARAMETER_BYTES, AtOnce, Need, Side, TwoSides, tree_bytes
from azq.process.proc import machine_busy_s, usable_cores, usage
from azq.replay.samples import Columns, count_samples
from azq.replay.window import Window
from azq.search.evaluator import UniformEvaluator
from azq.search.search import exploring, largest_budget, leaves_at_once, make_cache, make_search
from azq.wire.arrays import pack_record
from azq.wire.codec import encode
from azq.wire.messages import GameRecord, SampleEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from azq.games import Game
    from azq.host.devices import DevicePlan


WINDOW_SAMPLES = 20_000  # that the learner draws from while it is measured
ROUNDS = 2
WARM_UP = 0.5 / ROUNDS  # of what is measured, before it: what `in_turns` takes for it
ALLOWANCE_S = 120.0  # beyond the time itself: torch is loaded and the window filled


@contextlib.contextmanager
def workbench(sections: RunSections) -> Iterator[Callable[[float], Side]]:
    """Takes whole training steps for so many seconds, drawing and decoding included, each time it is called."""
    from azq.learner.opening import prepare_training
    from azq.parts.lab.bench.learner import steps_for, whole_step, workplace

    device, batch = prepare_training(sections.learner), sections.learner.batch_size
    trainer, _, feed = workplace(sections, device, WINDOW_SAMPLES)
    steps = partial(steps_for, whole_step(trainer, feed, feed.order(0, batch, WINDOW_SAMPLES)), device)

    def train(seconds: float) -> Side:
        spent = in_turns({"steps": (steps, (os.getpid(),))}, seconds, ROUNDS)["steps"]
        return Side(spent.done / spent.wall_s, spent.cpu_s / spent.done)

    try:
        yield train
    finally:
        feed.close()


def train_alone(sections: RunSections, seconds: float) -> Side:
    """What a learner does with the machine to itself."""
    with learner(sections) as training:
        return training.begin(seconds)()


class TrainingProcess(PartProcess):
    """A process that trains for so many seconds on request."""

    def begin(self, seconds: float) -> Callable[[], Side]:
        """Training starts now, with its warm-up; what comes back waits for what was done, or raises `EvaluationTimeout`."""
        self.write(seconds)
        return lambda: Side(**self.read((1.0 + WARM_UP) * seconds + ALLOWANCE_S))


@contextlib.contextmanager
def learner(sections: RunSections) -> Iterator[TrainingProcess]:
    """One that is ready to train; it ends with the block."""
    with TrainingProcess(train_on_request, sections=dump_run(sections)) as process:
        process.read(ALLOWANCE_S)
        yield process


def train_on_request(sections: dict[str, Any]) -> None:
    """What that process does: it reports that it is ready, and answers each line, a number of seconds, by what it then did."""
    with workbench(parse_run(sections, "the settings of the estimate")) as train:
        train(0.0)  # kernels are made with the first steps
        answer_line("ready")
        for line in sys.stdin:
            answer_line(asdict(train(float(line))))


GAMES = 64
LEAST_ENDED = 0.9  # of them: those that have not ended are long ones


class GameSize(NamedTuple):
    """Means over games."""

    samples: float
    plies: float  # decided by players, random opening plies among them
    record_bytes: float
    simulations: float


def game_size(sections: RunSections, seconds: float) -> GameSize | None:
    """Of games played for at most so long; None where too few ended."""
    game = rules(sections)
    config = exploring(sections.search, random_opening_plies=sections.selfplay.random_opening_plies)
    group = GameGroup(make_search(game, config, num_slots=GAMES, seed=sections.run.seed), game, leaves_at_once(sections.search, game))
    for slot in range(GAMES):
        group.start(slot, GameRecord(slot + 1))
    evaluator, end_s = UniformEvaluator(game.num_distinct_actions(), game.value_size()), time.monotonic() + seconds
    while time.monotonic() < end_s and (leaves := group.advance()):
        group.apply(evaluator.result(evaluator.submit(group.request()[0][:leaves]), timeout_s=0.0))
    ended = [SampleEvent(pack_record(record), tuple(map(float, record.returns)), "", now_ms()) for record in group.finished()]
    plies, simulations = group.search.plies, group.search.simulations
    group.drop()
    samples = sum(map(count_samples, ended))
    if len(ended) < LEAST_ENDED * GAMES or not samples:
        return None
    record_bytes = sum(len(encode(event)) for event in ended) / len(ended)
    played = 1 - sections.selfplay.fork_share / 2  # a game that begins anywhere in another one has half of it to go, as a mean
    return GameSize(played * samples / len(ended), played * plies / GAMES, record_bytes, played * simulations / GAMES)


SELFPLAY_SHARE, LEARNER_SHARE, BOTH_SHARE = 0.35, 0.15, 0.25  # of the time; the rest starts processes and warms them up


class Measurement(NamedTuple):
    """What was measured, and what stood beside it."""

    measured: TwoSides
    resident_bytes: int  # of all programs, with next to nothing in window and trees
    others_cores: float | None  # that other programs took meanwhile; None: unknown


def needs_of(sections: RunSections, plan: DevicePlan, size: GameSize | None) -> list[Need]:
    """What a run takes of memory at worst, without allocating it."""
    game, learner, selfplay = rules(sections), sections.learner, sections.selfplay
    window = Window(game, 1, Columns.of(game, sections.network.auxiliary))
    games, cache = selfplay.games_in_flight, make_cache(game, 1)
    entries = selfplay.cache_entries * plan.processes
    needs = [
        Need("the window of samples", learner.max_window * (window.bytes_per_sample + 4), "learner.max_window", learner.max_window),
        Need("trees of games in flight", games * plan.processes * _tree_bytes(game, sections), "selfplay.games_in_flight", games),
        Need("the evaluation cache", entries * (cache.memory_bytes if cache else 0), "selfplay.cache_entries", selfplay.cache_entries),
    ]
    if size:
        waiting = selfplay.max_waiting_games
        needs.append(Need("games that wait in the broker", int(waiting * size.record_bytes), "selfplay.max_waiting_games", waiting))
    return [*needs, Need("the network with its optimizer", _network_bytes(game, sections), "", 0)]


def _tree_bytes(game: Game, sections: RunSections) -> int:
    """A tree of the largest budget of the run: what the core reserves for one, else by the formula."""
    largest = sections.search.model_copy(update={"num_simulations": largest_budget(sections.search)})
    reserved = make_search(game, exploring(largest), num_slots=1, seed=0).memory_bytes
    return reserved or tree_bytes(largest.num_simulations, game.num_distinct_actions())


def _network_bytes(game: Game, sections: RunSections) -> int:
    from azq.nets import NetSpec, build

    parameters = sum(parameter.numel() for parameter in build(sections.network, NetSpec.of(game), seed=0).parameters())
    return parameters * PARAMETER_BYTES * max(1, sections.learner.ranks)


def measure(config: Config, plan: DevicePlan, size: GameSize | None, seconds: float, progress: Callable[[str], None]) -> Measurement:
    """Self-play with the run's network and search, training, and both at once; raises `EvaluationTimeout` where nothing came of it."""
    sections, began = config.run_sections(), WorkMoment.now()
    evaluator, alone_s, both_s = plan.evaluator, seconds * SELFPLAY_SHARE, seconds * BOTH_SHARE
    with rig(config, sections, inference=evaluator == "stream") as machine, learner(sections) as training:
        progress(f"plays {sections.run.game} for {alone_s:.0f} s")
        done, spent_s, _ = played(machine, evaluator, alone_s, plan.processes)
        if not done["plies"]:
            raise EvaluationTimeout(f"no ply of {sections.run.game} was searched to its end in the time; give --seconds {8 * seconds:.0f}")
        progress(f"trains for {seconds * LEARNER_SHARE:.0f} s")
        trained = training.begin(seconds * LEARNER_SHARE)()
        progress(f"does both for {both_s:.0f} s")
        meanwhile = training.begin(both_s)
        beside, _, _ = played(
            machine, evaluator, both_s, plan.processes, both_s * WARM_UP
        )  # as long as training, so that both sides begin to count together
        steps_per_s = meanwhile().per_s
        resident = sum(int(usage(pid).get(RESIDENT_BYTES, 0)) for pid in (os.getpid(), *machine.pids, training.pid))
    of_ply = size.samples / size.plies if size else 1.0
    samples = done["plies"] * of_ply
    sides = TwoSides(
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
    return Measurement(sides, resident, began.others(WorkMoment.now()))


class WorkMoment(NamedTuple):
    """A moment: of the wall clock, of the CPU of this process and its children that ended, and of the whole machine's."""

    wall_s: float
    own_s: float
    machine_s: float | None

    @classmethod
    def now(cls) -> WorkMoment:
        return cls(time.monotonic(), sum(os.times()[:4]), machine_busy_s())

    def others(self, later: WorkMoment) -> float | None:
        """Cores that other programs took until then; None where it is unknown."""
        if self.machine_s is None or later.machine_s is None:
            return None
        spent_s = later.machine_s - self.machine_s - (later.own_s - self.own_s)
        return max(0.0, spent_s / (later.wall_s - self.wall_s))
