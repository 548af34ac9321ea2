"""Every game learns: the bare policy of a small copy of its preset, trained for seconds in this process, beats random play.

The long form (`slow`) trains the presets themselves through the whole system.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from learner_doubles import train
from reference.driver import Driver
from replay_games import samples_of_one
from waiting import PATIENCE_S

from azq import games
from azq._core import Search
from azq.arena.searcher import Searcher
from azq.config import InferenceConfig, LearnerConfig, NetworkConfig, RunSections, parse_run
from azq.inference.ask.local import LocalEvaluator
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, WeightsMeta, build, to_bytes
from azq.presets import preset
from azq.replay.samples import Columns, Samples
from azq.search.search import exploring
from azq.wire.arrays import pack_record
from azq.wire.messages import SampleEvent

#: smaller kin of a game where it has one, so that seconds suffice
SMALL: dict[str, dict[str, Any]] = {
    "backgammon": {"start": "race"},
    "beasty_bar": {"players": 2},
    "blob": {"players": 3, "cards": 3, "trump": "none"},
    "gomoku": {"size": 9},
    "hex": {"size": 5},
    "othello": {"size": 6},
}
#: games a round and rounds, where luck takes more of them to see through
EFFORT = {"backgammon": (96, 4), "beasty_bar": (384, 5), "blob": (384, 5)}
QUICKEST = ("connect_four", "tic_tac_toe")  # the others are for continuous integration
SLOTS, ROUNDS = 48, 3
STEPS = 150
BATCH = 256
MATCH_GAMES = 120


def small(name: str) -> RunSections:
    """The preset with fewer simulations, a narrower network and no window to speak of."""
    sections = parse_run(preset(name), name)
    network = sections.network.model_copy(update={"blocks": 1, "channels": 32, "heads": 4})
    learner = sections.learner.model_copy(update={"batch_size": BATCH, "learning_rate": 3e-3, "warmup_steps": 20, "ema_decay": 0.95})
    search = sections.search.model_copy(update={"num_simulations": 12})
    run = sections.run.model_copy(update={"params": SMALL.get(name, sections.run.params)})
    return sections.model_copy(update={"network": network, "learner": learner, "search": search, "run": run})


class Agent:
    """A network in training with the games it has made."""

    def __init__(self, name: str) -> None:
        self.sections = small(name)
        self.game = games.load(name, **self.sections.run.params)
        network: NetworkConfig = self.sections.network
        learner: LearnerConfig = self.sections.learner
        module = build(network, self.game, seed=1)
        device = torch.device("cpu")
        symmetries = Symmetries(self.game, device) if learner.symmetries else None
        self.trainer = Trainer(module, NetSpec.of(self.game), learner, device, symmetries)
        self.columns = Columns.of(self.game, network.auxiliary)
        self.samples: list[Samples] = []
        self.slots, self.rounds = EFFORT.get(name, (SLOTS, ROUNDS))
        self._uid = 1

    def evaluator(self) -> LocalEvaluator:
        """The averaged weights of now."""
        meta = WeightsMeta(self.game.name, 1, 0, dict(self.sections.run.params), self.sections.network.model_dump(mode="json"))
        return LocalEvaluator.from_bytes(self.game, to_bytes(self.trainer.averaged, meta), InferenceConfig(threads=1))

    def self_play(self) -> None:
        """One game in every slot."""
        evaluator = self.evaluator()

        def evaluate(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            evaluation = evaluator.result(evaluator.submit(packed), timeout_s=PATIENCE_S)
            assert evaluation is not None
            return evaluation.logits, evaluation.values

        search = Search(self.game, exploring(self.sections.search), num_slots=self.slots, seed=7)
        driver = Driver(search, packed_size=self.game.packed_size(), leaves_per_step=1, evaluate=evaluate)
        for record in driver.play(range(self._uid, self._uid + self.slots)):
            event = SampleEvent(pack_record(record), tuple(float(value) for value in record.returns), "canary", 0)
            self.samples.append(samples_of_one(self.game, event, 0.25, self.columns))
        self._uid += self.slots
        evaluator.close()

    def train(self) -> None:
        """Steps over the games of all rounds."""
        rng = np.random.default_rng(self._uid)
        window = [sample for sample in self.samples if len(sample)]
        for _ in range(STEPS):
            train(self.trainer, _batch(window, rng), rng)

    def points_against_random(self) -> np.ndarray:
        """What the agent's seat won in each game; seats in turn, all others move at random."""
        evaluator = self.evaluator()
        searcher = Searcher(
            self.game, evaluator, self.sections.search, 1, slots=MATCH_GAMES, seed=3
        )  # what it learned, not what search adds
        rng = random.Random(5)
        states = [self.game.new_initial_state() for _ in range(MATCH_GAMES)]
        seats = [number % self.game.num_players() for number in range(MATCH_GAMES)]
        while live := [number for number, state in enumerate(states) if not state.is_terminal()]:
            mine = [number for number in live if states[number].current_player() == seats[number]]
            results = searcher.results([states[number].history() for number in mine])
            for number, result in zip(mine, results, strict=True):
                states[number].apply_action(result.best_action)
            for number in set(live) - set(mine):
                _move_at_random(states[number], rng)
        evaluator.close()
        return np.array([state.returns()[seat] for state, seat in zip(states, seats, strict=True)])


def _move_at_random(state: games.State, rng: random.Random) -> None:
    if state.is_chance_node():
        outcomes, weights = zip(*state.chance_outcomes(), strict=True)
        state.apply_action(rng.choices(outcomes, weights)[0])
    else:
        state.apply_action(rng.choice(state.legal_actions()))


def _batch(window: list[Samples], rng: np.random.Generator) -> Samples:
    fields = [field for field in Samples.__dataclass_fields__ if getattr(window[0], field) is not None]
    joined = {field: np.concatenate([getattr(samples, field) for samples in window]) for field in fields}
    rows = rng.integers(0, len(joined["packed"]), BATCH)
    return Samples(**{field: values[rows] for field, values in joined.items()})


def random_points(game: games.Game) -> float:
    """Mean return of a seat where everybody moves at random: what the agent has to beat."""
    rng = random.Random(6)
    total = []
    for number in range(200):
        state = game.new_initial_state()
        while not state.is_terminal():
            _move_at_random(state, rng)
        total.append(state.returns()[number % game.num_players()])
    return float(np.mean(total))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICKEST)) for name in games.names()])
def test_seconds_of_training_beat_random_play(name: str) -> None:
    torch.set_num_threads(1)
    agent = Agent(name)
    losses = []
    for _ in range(agent.rounds):
        agent.self_play()
        agent.train()
        losses.append(agent.trainer.mean_losses())
        agent.trainer.reset_losses()
    points = agent.points_against_random()
    margin = points.mean() - random_points(agent.game)
    assert margin > 2.0 * points.std() / np.sqrt(len(points)), f"{name}: {points.mean():+.2f} a game, losses {losses}"
