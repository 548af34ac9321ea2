"""What a player is: the positions it gets, what of them it may see, what it may answer, and what it stands on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from azq import _core
from azq.errors import EngineError, IllegalActionError

if TYPE_CHECKING:  # the command line reads the table of players for its help, and needs neither
    from azq.config import SearchConfig
    from azq.search.evaluator import Evaluator

RESIGN = -1  # an action that `choose` may answer: the player gives the game up
SEED_BITS = 63
MAX_SLOTS = 256  # positions that are searched at once, at most
DEADLINE_S = 60.0  # for one answer of an engine's process

Tick = Callable[[], None]  # called by long work while it waits, at least ten times a second: renews a lease; what it raises ends the work


def no_tick() -> None:
    """The tick of a caller with nothing to look after."""


class Player(Protocol):
    """Chooses moves for many positions at once."""

    name: str  # as ratings know it; `latest` is resolved to its version

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        """One action for each position, given as all actions and outcomes of chance since the initial state, or as a `Line`."""

    def close(self) -> None:
        """Ends what the player started; most start nothing."""
        return


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
    deadline_s: float = DEADLINE_S
    move_ms: int = 0  # of a move, in place of so many simulations; 0: no clock
    clock: Callable[[], float] = time.perf_counter  # seconds, by which a move is timed
    engines: Sequence[str] = ()  # the commands that `gtp:<command>` may start
    owner: str = ""  # the player `azq:<game>` or `file:<weights>` whose weights the evaluator has, in place of the run's


class Line(list[int]):
    """Actions from a position that is not the initial one; it goes wherever a history goes."""

    def __init__(self, start: _core.State, actions: Iterable[int] = ()) -> None:
        super().__init__(actions)
        self.start = start


class Played(list[int]):
    """Actions of a game of a match; `number` is its place in the whole match, by which players draw what they leave to chance."""

    def __init__(self, number: int, actions: Iterable[int] = ()) -> None:
        super().__init__(actions)
        self.number = number


class GameSeeds:
    """Seeds for what a player leaves to chance: of a match's game by its number and ply, whatever other positions he gets; else in turn."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked = 0

    def __call__(self, history: Sequence[int]) -> int:
        self._asked += 1
        place = f"{history.number}:{len(history)}" if isinstance(history, Played) else self._asked
        return random.Random(f"{self._seed} {place}").getrandbits(SEED_BITS)


def position(game: _core.Game, history: Sequence[int]) -> _core.State:
    """The state after these actions; raises `IllegalActionError` for actions that do not replay."""
    state = history.start.clone() if isinstance(history, Line) else game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


def requested_history(game: _core.Game, actions: Iterable[int], notation: str | None = None) -> Sequence[int]:
    """The history of a requested position: actions from the initial state, or from that of a notation.

    What a player cannot know is drawn again for the answer, so that any hands which fit what he has seen will do.
    Raises `IllegalActionError` where the actions do not replay or no player is to move there, `ConfigError` for what is no notation.
    """
    start = game.new_initial_state() if notation is None else game.state_from_notation(notation)
    history = list(actions) if notation is None else Line(start, actions)
    state = start.clone()
    for action in history:
        if state.is_terminal():
            raise IllegalActionError(f"the game is over before action {action}")
        state.apply_action(action)
    if state.is_terminal():
        raise IllegalActionError("the game is over, there is no move")
    if state.is_chance_node():
        raise IllegalActionError("chance is to act there, no player; add its outcome to the actions")
    return history


def seen(game: _core.Game, history: Sequence[int], seed: int) -> _core.State:
    """The position as its player to move may see it: all that is hidden from him is drawn again, and no history is attached.

    Players that hold a whole state get it from here and nowhere else, so that none of them can peek.
    """
    from azq.games.adapted_state import AdaptedState

    state = position(game, history)
    if not game.is_hidden():
        return state
    drawn = state.resample_from_infostate(state.current_player(), seed)
    if isinstance(drawn, AdaptedState):
        return drawn  # its notation may be its history, and that the deal as it really was
    return game.state_from_notation(drawn.notation())  # a history would hold the deal as it really was


def from_the_start(player: str, history: Sequence[int]) -> list[int]:
    """The actions from the initial state; raises `EngineError` where the position is known by its notation only."""
    if isinstance(history, Line):
        raise EngineError(f"player {player} takes actions from the initial position only, not a notation; give positions as actions")
    return [int(action) for action in history]
