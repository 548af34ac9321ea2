"""GNU Backgammon's networks and Tesauro's pubeval, through gnubg-nn in a separate process: `gnubg:<plies>`, `pubeval`."""

from __future__ import annotations

import base64
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from azq import _core
from azq.arena.engines.process import EngineProcess
from azq.arena.player import DEADLINE_S, Line, Tick, no_tick
from azq.errors import ConfigError, EngineError, MissingExtra

SCRIPT = Path(__file__).with_name("gnubg_process.py")
PLAYERS = ("gnubg:0", "gnubg:1", "gnubg:2", "pubeval")
REMEDY = "reinstall gnubg-nn"
MAX_PLANS = 4096
ID_BITS = 80
ID_CHARACTERS = 14
SIDE = 25  # points 1 to 24 in the player's own numbering, then the bar
HOME = 6

Side = tuple[int, ...]
Board = tuple[Side, Side]  # the viewer's checkers, the other's


class Gnubg:
    """The engine's process; raises `ConfigError` for a name that it does not know, `MissingExtra` where gnubg-nn is not installed."""

    def __init__(self, name: str, *, deadline_s: float = DEADLINE_S, tick: Tick = no_tick) -> None:
        if name not in PLAYERS:
            raise ConfigError(f"no player {name!r}; of backgammon's engines there are {', '.join(PLAYERS)}")
        if importlib.util.find_spec("gnubg_nn") is None:
            raise MissingExtra(f"player {name} needs the package gnubg-nn; install azq with its extra: pip install 'azq[gnubg]'")
        self._name = name
        self._process = EngineProcess(name, [sys.executable, "-I", str(SCRIPT)], remedy=REMEDY, deadline_s=deadline_s, tick=tick)

    def end(self, position_id: str, dice: tuple[int, int]) -> Board:
        """The board after the turn it plays, its own checkers first; raises `EngineError`."""
        about = f"backgammon {position_id}:{dice[0]}{dice[1]}"
        answer = self._process.ask_json({"player": self._name, "position": position_id, "dice": dice}, about)
        try:
            own, other = (tuple(int(count) for count in side) for side in answer["end"])
        except (KeyError, TypeError, ValueError):
            raise self._process.broke(f"answered nonsense, {str(answer)[:80]!r},", about) from None
        return own, other

    def values(self, position_ids: Sequence[str]) -> list[float]:
        """What positions are worth to the player on roll: equity in points, of pubeval its score; raises `EngineError`."""
        about = f"backgammon {position_ids[0]} and {len(position_ids) - 1} more"
        answer = self._process.ask_json({"player": self._name, "positions": list(position_ids)}, about)
        values = answer.get("values")
        if not isinstance(values, list) or len(values) != len(position_ids) or not all(type(value) is float for value in values):
            raise self._process.broke(f"answered nonsense, {str(answer)[:80]!r},", about)
        return values

    def no_such_turn(self, notation: str) -> EngineError:
        """Ends the process; the error for a turn that the rules do not have."""
        return self._process.broke("played a turn that the rules do not have", f"backgammon {notation}")

    def close(self) -> None:
        self._process.close()


class GnubgPlayer:
    """Plays the engine's turns, micro-move by micro-move.

    Raises `ConfigError`, `MissingExtra` and `EngineError` as `Gnubg`.
    """

    def __init__(self, name: str, game: _core.Game, *, deadline_s: float = DEADLINE_S, tick: Tick = no_tick) -> None:
        self.name = name
        self._game = game
        self._engine = Gnubg(name, deadline_s=deadline_s, tick=tick)
        self._plans: dict[str, int] = {}  # by notation: the next action of a turn that was decided at its start

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        return [self._action(*turn(self._game, history)) for history in histories]

    def close(self) -> None:
        self._engine.close()

    def _action(self, start: _core.State, state: _core.State) -> int:
        legal = state.legal_actions()
        if len(legal) == 1:
            return legal[0]
        notation = state.notation()
        if notation not in self._plans:
            self._plan(start, state)
        return self._plans[notation]

    def _plan(self, start: _core.State, state: _core.State) -> None:
        """Decides the turn from `start`, and how it goes on from `state`."""
        if len(self._plans) > MAX_PLANS:
            self._plans.clear()
        reachable = lines(state)
        wanted = self._end(start)
        if wanted not in reachable:  # another player began the turn, or its beginning is unknown
            if is_fresh(state):
                raise self._engine.no_such_turn(state.notation())
            wanted = self._best(list(reachable))
        state = state.clone()
        for action in reachable[wanted]:
            self._plans[state.notation()] = action
            state.apply_action(action)

    def _end(self, start: _core.State) -> Board | None:
        """Where the engine's turn ends; None where it is under way."""
        if not is_fresh(start):
            return None
        position_id, dice = start.notation().split(":")[:2]
        return self._engine.end(position_id, (int(dice[0]), int(dice[1])))

    def _best(self, ends: list[Board]) -> Board:
        """The end that leaves the other player worst off."""
        if any(not any(own) for own, _ in ends):
            return next(end for end in ends if not any(end[0]))
        values = self._engine.values([write_position_id(end, on_roll=False) for end in ends])
        return ends[min(range(len(ends)), key=values.__getitem__)]


def turn(game: _core.Game, history: Sequence[int]) -> tuple[_core.State, _core.State]:
    """The position at the start of the turn at hand, as far as it is known, and the position itself."""
    state = history.start.clone() if isinstance(history, Line) else game.new_initial_state()
    start = state.clone()
    for action in history:
        thrown = state.is_chance_node()
        state.apply_action(action)
        if thrown:
            start = state.clone()
    return start, state


def read_position_id(position_id: str) -> Board:
    """The board of a GNU position ID as the player on roll sees it; raises `ConfigError` for what is no ID."""
    try:
        if len(position_id) != ID_CHARACTERS:
            raise ValueError
        bits = int.from_bytes(base64.b64decode(position_id + "==", validate=True), "little")
        ones = f"{bits:0{ID_BITS}b}"[::-1].split("0")
        other, own = ones[:SIDE], ones[SIDE : 2 * SIDE]
        if len(ones) <= 2 * SIDE or any(ones[2 * SIDE :]):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{position_id!r} is no position ID; write one as gnubg does, such as 4HPwATDgc/ABMA") from None
    return tuple(map(len, own)), tuple(map(len, other))


def write_position_id(board: Board, *, on_roll: bool) -> str:
    """The ID of a viewer's board; `on_roll`: whether it is he who rolls."""
    own, other = board
    first, second = (other, own) if on_roll else (own, other)
    ones = "".join("1" * count + "0" for count in (*first, *second))
    return base64.b64encode(int(ones[::-1], 2).to_bytes(ID_BITS // 8, "little")).decode()[:ID_CHARACTERS]


def board_of(state: _core.State, player: int) -> Board:
    """The board as a player sees it."""
    position_id, _, *fields = state.notation().split(":")
    own, other = read_position_id(position_id)
    return (own, other) if player == int("p1" in fields) else (other, own)


def is_fresh(state: _core.State) -> bool:
    """Whether a turn begins here: dice were rolled, and none of them is played."""
    return state.current_player() >= 0 and not any(field.startswith("u") for field in state.notation().split(":")[2:])


def lines(state: _core.State) -> dict[Board, list[int]]:
    """The boards that the turn at hand can end in, as its player sees them, with a line of micro-moves to each."""
    player = state.current_player()
    values: dict[Board, list[int]] = {}
    met = set()
    stack: list[tuple[_core.State, list[int]]] = [(state, [])]
    while stack:
        here, line = stack.pop()
        for action in here.legal_actions():
            after = here.clone()
            after.apply_action(action)
            if after.current_player() != player:
                values[board_of(after, player)] = [*line, action]
            elif (notation := after.notation()) not in met:
                met.add(notation)
                stack.append((after, [*line, action]))
    return values


def phase(board: Board) -> str:
    """contact where the players can still meet, else race, and bearoff where all checkers are at home."""
    own, other = board
    rear = [max((point for point, count in enumerate(side, 1) if count), default=0) for side in (own, other)]
    if sum(rear) > SIDE:
        return "contact"
    return "bearoff" if max(rear) <= HOME else "race"
