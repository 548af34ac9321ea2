"""Who can play, by name: networks, classical searches, rule players, and engines in separate processes.

`PLAYERS` is the one table of them: help, errors and the pattern of the REST interface are made from it. A player imports what it needs
when it is made, for the command line reads this table to print its help.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from azq import _core
from azq.arena.player import GameSeeds, Ground, Player, position, seen
from azq.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from azq.search.search import Result


FILE = "file:"


class NetworkPlayer(Player):
    """A network, or the mean of several, behind the run's search, without exploration."""

    def __init__(self, versions: Sequence[int], ground: Ground) -> None:
        from azq.arena.searcher import Searcher
        from azq.search.evaluator import joined

        self.name = ground.owner or f"weights:{','.join(map(str, versions))}"
        if ground.evaluator is None:
            raise ConfigError(f"player {self.name} needs an evaluator")
        evaluator = joined(ground.evaluator, versions)
        self._searcher = Searcher(
            *(ground.game, evaluator, ground.search, ground.num_simulations),
            slots=ground.slots,
            weight_version=max(versions),
            seed=ground.seed,
            tick=ground.tick,
            move_ms=ground.move_ms,
            clock=ground.clock,
        )

    @property
    def simulations(self) -> int:
        """Done so far."""
        return self._searcher.simulations

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        return [result.best_action for result in self.results(histories)]

    def results(self, histories: Sequence[Sequence[int]]) -> list[Result]:
        """What the search ends with in each position."""
        return self._searcher.results(histories)

    def results_and_lines(self, histories: Sequence[Sequence[int]]) -> list[tuple[Result, list[int]]]:
        """The same, each with the play that the search expects."""
        return self._searcher.results_and_lines(histories)


class RandomPlayer(Player):
    """Any legal action, equally likely."""

    def __init__(self, ground: Ground) -> None:
        self.name = "random"
        self._game, self._seeds = ground.game, GameSeeds(ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        return [random.Random(self._seeds(history)).choice(position(self._game, history).legal_actions()) for history in histories]


class StateChooser(Protocol):
    """Chooses by a state alone, in which all that is hidden from its player to move has been drawn again."""

    def best_action(self, state: _core.State) -> int:
        """Its move."""


class StatePlayer(Player):
    """A classical search or rules of thumb: one position after another, each as its player to move may see it, by a chooser of a seed."""

    def __init__(self, name: str, chooser: Callable[[int], StateChooser], ground: Ground) -> None:
        self.name = name
        self._chooser = chooser
        self._ground = ground
        self._seeds = GameSeeds(ground.seed)

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        actions = []
        for history in histories:
            self._ground.tick()
            seed = self._seeds(history)
            actions.append(self._chooser(seed).best_action(seen(self._ground.game, history, seed)))
        return actions


@dataclass(frozen=True, slots=True)
class PlayerKind:
    """One row of the table: how the name is written and what makes the player of a name of this kind."""

    form: str  # as help writes it
    pattern: str  # of the whole name
    make: Callable[[str, Ground], Player]
    games: tuple[str, ...] = ()  # that it knows; none: it says so itself
    network: bool = False  # whether it needs an evaluator
    fixed: bool = False  # whether its name says how many simulations a move has
    requested: str | None = ""  # the pattern of names that requests may have, where it is narrower; None: they have none


def _network(name: str, ground: Ground) -> Player:
    from azq.ratings.elo import versions_of  # here, as the help of commands names the forms of players without numpy

    return NetworkPlayer(versions_of(name) or (ground.latest,), ground)


def _owner(name: str, ground: Ground) -> Player:
    if ground.owner != name:
        seats = "`azq match` seats it" if name.startswith(FILE) else "`azq match` and the matches of a run's arena seat it"
        raise ConfigError(f"player {name} does not play here; {seats}")
    return NetworkPlayer((ground.latest,), ground)


def _uct(name: str, ground: Ground) -> Player:
    from azq.arena.classical import PythonUct

    count = int(_detail(name))
    if ground.game.is_hidden():
        raise ConfigError(f"player {name} would see what {ground.game.name} hides; take pimc:<determinizations>")
    if isinstance(ground.game, _core.Game):
        return StatePlayer(name, lambda seed: _core.Uct(ground.game, num_simulations=count, seed=seed), ground)
    return StatePlayer(name, lambda seed: PythonUct(count, seed, ground.tick), ground)


def _pimc(name: str, ground: Ground) -> Player:
    from azq.arena.classical import PythonPimc

    count = int(_detail(name))
    if isinstance(ground.game, _core.Game):
        return StatePlayer(name, lambda seed: _core.Pimc(ground.game, num_determinizations=count, seed=seed), ground)
    return StatePlayer(name, lambda seed: PythonPimc(count, seed, ground.tick), ground)


def _rule(name: str, ground: Ground) -> Player:
    from azq.arena.rules import rule_book

    book = rule_book(ground.game)
    return StatePlayer(name, lambda _: book, ground)


def _solver(name: str, ground: Ground) -> Player:
    from azq.arena.engines.solver import SolverPlayer

    return SolverPlayer(deadline_s=ground.deadline_s, tick=ground.tick)


def _gnubg(name: str, ground: Ground) -> Player:
    from azq.arena.engines.gnubg import GnubgPlayer

    return GnubgPlayer(name, ground.game, deadline_s=ground.deadline_s, tick=ground.tick)


def _gtp(name: str, ground: Ground) -> Player:
    from azq.arena.engines.gtp import GtpPlayer

    if _detail(name) not in ground.engines:
        raise EngineError(f"player {name} is not among this host's engines; its operator can name the command in worker.engines")
    return GtpPlayer(_detail(name), ground.game, move_ms=ground.move_ms, deadline_s=ground.deadline_s, tick=ground.tick)


PLAYERS = (
    PlayerKind("weights:<version>[,<version> ...]", "weights:[1-9][0-9]{0,8}(,[1-9][0-9]{0,8}){0,7}", _network, network=True),
    PlayerKind("latest", "latest", _network, network=True),
    PlayerKind("azq:<game>", "azq:[a-z0-9][a-z0-9_]{0,39}", _owner, network=True),
    PlayerKind("file:<weights>", r"file:[^\x00-\x1f\x7f]+", _owner, network=True, requested=None),
    PlayerKind("random", "random", lambda name, ground: RandomPlayer(ground)),
    PlayerKind("uct:<simulations>", "uct:[1-9][0-9]{0,6}", _uct, fixed=True),
    PlayerKind("pimc:<determinizations>", "pimc:[1-9][0-9]{0,6}", _pimc, fixed=True),
    PlayerKind("rule", "rule", _rule),
    PlayerKind("solver", "solver", _solver, games=("connect_four",)),
    PlayerKind("gnubg:<plies>", "gnubg:[0-9]", _gnubg, games=("backgammon",)),
    PlayerKind("pubeval", "pubeval", _gnubg, games=("backgammon",)),
    # What it may start is the worker's own setting, worker.engines.
    PlayerKind("gtp:<command>", r"gtp: *[^\x00-\x20\x7f][^\x00-\x1f\x7f]*", _gtp, requested="gtp:[ -~]{1,200}"),
)
REQUESTED = tuple(kind for kind in PLAYERS if kind.requested is not None)
FORMS = ", ".join(kind.form for kind in PLAYERS)
REQUESTED_FORMS = ", ".join(kind.form for kind in REQUESTED)
PATTERN = f"^({'|'.join(kind.requested or kind.pattern for kind in REQUESTED)})$"  # of what requests name


def kind_of(name: str) -> PlayerKind:
    """The row of a player's name; raises `ConfigError` for a name of no known form."""
    for kind in PLAYERS:
        if re.fullmatch(kind.pattern, name):
            return kind
    raise ConfigError(f"no player {name!r}; a player is one of {FORMS}")


def make_player(name: str, ground: Ground) -> Player:
    """The player of that name.

    Raises `ConfigError` for a name of no known form or a player that does not know the game, `MissingExtra` and `EngineError`
    for an engine that is not installed, not allowed or does not start.
    """
    kind = kind_of(name)
    if kind.games and ground.game.name not in kind.games:
        raise ConfigError(f"player {name} knows {', '.join(kind.games)} only, not {ground.game.name}")
    if ground.move_ms and kind.fixed:
        raise ConfigError(
            f"player {name} has a fixed number of simulations and none of --move-ms; seat networks or engines, or leave it out"
        )
    return kind.make(name, ground)


def _detail(name: str) -> str:
    return name.partition(":")[2]
