"""Who can play: `weights:<version>` and `latest` by search, `uct:<simulations>`, `random`, `solver` (connect four)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from azq import _core
from azq.arena.searcher import MAX_SLOTS, Searcher, Tick, no_tick
from azq.arena.solver import Solver
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.search.evaluator import Evaluator

FORMS = "weights:<version>, latest, uct:<simulations>, random, solver"


class Player(Protocol):
    """Chooses moves for many positions at once."""

    @property
    def name(self) -> str:
        """The player as ratings know it; `latest` is resolved to its version."""

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """One action for each position, given as its actions from the initial state."""

    def close(self) -> None:
        """Ends what the player started."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What players of one match share: rules, evaluator, the run's search and budget, and who to tell that time passes."""

    game: _core.Game
    evaluator: Evaluator | None
    search: SearchConfig
    num_simulations: int
    seed: int = 0
    latest: int = 0  # the version that `latest` means
    slots: int = MAX_SLOTS
    tick: Tick = no_tick


def make_player(name: str, ground: Ground) -> Player:
    """The player of that name; raises `ConfigError` for a name of no known form and `MissingExtra` for a solver not installed."""
    kind, _, detail = name.partition(":")
    if name == "latest" or (kind == "weights" and detail.isdigit()):
        version = int(detail) if detail else ground.latest
        return NetworkPlayer(version, ground)
    if kind == "uct" and detail.isdigit() and int(detail) > 0:
        return UctPlayer(int(detail), ground)
    if name == "random":
        return RandomPlayer(ground)
    if name == "solver":
        return SolverPlayer(ground)
    raise ConfigError(f"no player {name!r}; a player is one of {FORMS}")


class NetworkPlayer:
    """A network behind the run's search, without exploration."""

    def __init__(self, version: int, ground: Ground) -> None:
        if ground.evaluator is None:
            raise ConfigError(f"player weights:{version} needs an evaluator")
        self.name = f"weights:{version}"
        self._searcher = Searcher(
            ground.game,
            ground.evaluator,
            ground.search,
            ground.num_simulations,
            slots=ground.slots,
            weight_version=version,
            seed=ground.seed,
            tick=ground.tick,
        )

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The search's best action in each position."""
        return [result.best_action for result in self._searcher.results(histories)]

    def close(self) -> None:
        """Nothing to end."""


class UctPlayer:
    """Pure UCT, one position after another."""

    def __init__(self, num_simulations: int, ground: Ground) -> None:
        self.name = f"uct:{num_simulations}"
        self._ground = ground
        self._uct = _core.Uct(ground.game, num_simulations=num_simulations, seed=ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The most visited action in each position."""
        actions = []
        for history in histories:
            self._ground.tick()
            actions.append(self._uct.best_action(position(self._ground.game, history)))
        return actions

    def close(self) -> None:
        """Nothing to end."""


class RandomPlayer:
    """Any legal action, equally likely."""

    name = "random"

    def __init__(self, ground: Ground) -> None:
        self._game = ground.game
        self._rng = random.Random(ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """A random legal action in each position."""
        return [self._rng.choice(position(self._game, history).legal_actions()) for history in histories]

    def close(self) -> None:
        """Nothing to end."""


class SolverPlayer:
    """Perfect play at connect four, from a solver in its own process."""

    name = "solver"

    def __init__(self, ground: Ground) -> None:
        if ground.game.name != "connect_four":
            raise ConfigError(f"player solver knows connect_four only, not {ground.game.name}")
        self._tick = ground.tick
        self._solver = Solver()

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The action that wins soonest, or loses latest."""
        actions = []
        for history in histories:
            self._tick()
            scores = self._solver.scores(history)
            actions.append(max(scores, key=lambda action: (scores[action], -abs(action - 3))))
        return actions

    def close(self) -> None:
        """Ends the solver's process."""
        self._solver.close()


def position(game: _core.Game, history: Sequence[int]) -> _core.State:
    """The state after these actions."""
    state = game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state
