"""Who can play, by name: networks, classical searches, rule players, and engines in processes of their own.

| name | plays |
|---|---|
| weights:<version>, latest | any game: the run's search with these weights |
| random | any game |
| uct:<simulations> | games without chance and secrets |
| pimc:<determinizations> | any game: perfect-information Monte Carlo |
| rule | beasty_bar, blob: rules of thumb |
| solver | connect_four: perfectly |
| gnubg:<plies>, pubeval | backgammon |
| gtp:<command> | othello, gomoku, hex: any engine that speaks GTP |
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from azq import _core
from azq.arena.engines.process import DEADLINE_S
from azq.arena.engines.solver import Solver
from azq.arena.position import from_the_start, position, seen
from azq.arena.rule_players import rule_book
from azq.arena.searcher import MAX_SLOTS, Searcher
from azq.arena.tick import Tick, no_tick
from azq.config import SearchConfig
from azq.errors import ConfigError, EngineError
from azq.search.evaluator import Evaluator

FORMS = "weights:<version>, latest, random, uct:<simulations>, pimc:<determinizations>, rule, solver, gnubg:<plies>, pubeval, gtp:<command>"
SEED_LIMIT = 2**63


class Player(Protocol):
    """Chooses moves for many positions at once."""

    @property
    def name(self) -> str:
        """The player as ratings know it; `latest` is resolved to its version."""

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """One action for each position, given as all actions and outcomes of chance since the initial state, or as a `Line`."""

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
    deadline_s: float = DEADLINE_S  # for one answer of an engine's process
    engines: Sequence[str] = ()  # the commands that `gtp:<command>` may start


def make_player(name: str, ground: Ground) -> Player:
    """The player of that name.

    Raises `ConfigError` for a name of no known form or a player that does not know the game, `MissingExtra` and `EngineError`
    for an engine that is not installed, not allowed or does not start.
    """
    kind, _, detail = name.partition(":")
    if kind in ("uct", "pimc") and not isinstance(ground.game, _core.Game):
        raise ConfigError(f"player {name} plays games of the core only, not {ground.game.name}; take random or earlier weights")
    if name == "latest" or (kind == "weights" and detail.isdecimal()):
        return NetworkPlayer(int(detail) if detail else ground.latest, ground)
    if kind == "uct" and detail.isdecimal() and int(detail) > 0:
        return ClassicalPlayer(name, _core.Uct(ground.game, num_simulations=int(detail), seed=ground.seed), ground)
    if kind == "pimc" and detail.isdecimal() and int(detail) > 0:
        return ClassicalPlayer(name, _core.Pimc(ground.game, num_determinizations=int(detail), seed=ground.seed), ground)
    if name == "random":
        return RandomPlayer(ground)
    if name == "rule":
        return RulePlayer(ground)
    if name == "solver":
        return SolverPlayer(ground)
    if name == "pubeval" or (kind == "gnubg" and detail.isdecimal()):
        return _backgammon_player(name, ground)
    if kind == "gtp" and detail.strip():
        from azq.arena.engines.gtp import GtpPlayer

        if detail not in ground.engines:
            raise EngineError(f"player {name} is not among this host's engines; its operator can name the command in worker.engines")
        return GtpPlayer(detail, ground.game, deadline_s=ground.deadline_s, tick=ground.tick)
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


class Classical(Protocol):
    """A search of the core without a network."""

    def best_action(self, state: _core.State) -> int:
        """Its move."""


class ClassicalPlayer:
    """Pure UCT or PIMC, one position after another."""

    def __init__(self, name: str, search: Classical, ground: Ground) -> None:
        self.name = name
        self._search = search
        self._ground = ground
        self._rng = random.Random(ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The search's move in each position."""
        actions = []
        for history in histories:
            self._ground.tick()
            actions.append(self._search.best_action(seen(self._ground.game, history, self._rng.randrange(SEED_LIMIT))))
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


class RulePlayer:
    """The game's rules of thumb, which see what the player to move sees."""

    name = "rule"

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._rules = rule_book(ground.game)
        self._rng = random.Random(ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The rules' action in each position."""
        self._ground.tick()
        return self._rules.choose([seen(self._ground.game, history, self._rng.randrange(SEED_LIMIT)) for history in histories])

    def close(self) -> None:
        """Nothing to end."""


class SolverPlayer:
    """Perfect play at connect four, from a solver in its own process."""

    name = "solver"

    def __init__(self, ground: Ground) -> None:
        if ground.game.name != "connect_four":
            raise ConfigError(f"player solver knows connect_four only, not {ground.game.name}")
        self._solver = Solver(deadline_s=ground.deadline_s, tick=ground.tick)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """The action that wins soonest, or loses latest."""
        return [self._solver.best(from_the_start(self.name, history)) for history in histories]

    def close(self) -> None:
        """Ends the solver's process."""
        self._solver.close()


def _backgammon_player(name: str, ground: Ground) -> Player:
    if ground.game.name != "backgammon":
        raise ConfigError(f"player {name} knows backgammon only, not {ground.game.name}")
    module = importlib.import_module("azq.arena.engines.gnubg")
    player: Player = module.GnubgPlayer(name, ground.game, deadline_s=ground.deadline_s, tick=ground.tick)
    return player
