"""A position of a game written in Python, as `azq._core.State`; whatever the object does wrong comes out as `GameContractError`.

Letters: C planes, H rows, W columns, S scalars, A actions, P bytes of a packed observation.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from azq._core import CHANCE_PLAYER, TERMINAL_PLAYER, ascending_below, pack_bits, pack_list
from azq.errors import GameContractError, IllegalActionError
from azq.games.scores import ScoreScale, value_of

MAX_OUTCOME = 65_535  # what fits a record
MAX_PLIES = 100_000  # of any game
RAISED = (Exception, SystemExit)  # by a game: `sys.exit` in one would end a command as if all were well
T = TypeVar("T")
Redraw = Callable[[Any, int, Callable[[], float]], Any]  # a position which this player cannot tell from this one, by random numbers


@dataclass(frozen=True)
class GameForm:
    """What a game in Python declares of itself, and what its first position showed."""

    name: str
    players: int
    actions: int
    binary: bool  # observations hold only 0 and 1 and travel as bits; else they travel as int8, `scale` to one
    scale: float
    utility: float  # by what returns are divided
    hidden: bool
    has_notation: bool
    chance: bool
    observe: Callable[[Any, int], Any]  # what the object shows a player, as a list or an array; read at once, so that it may be used again
    redraw: Redraw
    scores: ScoreScale | None = None  # on which returns are a score; none: they are values
    shape: tuple[int, ...] = ()  # of an observation, (C, H, W) or flat; () until it is known
    user_scalars: int = -1  # that the object itself counts; -1 until it is known
    longest: int = 10_000  # decisions of a game, after which it must be over

    @property
    def planes(self) -> tuple[int, int, int]:
        """C, H, W; a flat observation of bits is one row."""
        if not self.binary:
            return 0, 1, 1
        return (self.shape[0], self.shape[1], self.shape[2]) if len(self.shape) == 3 else (1, 1, self.shape[0])

    @cached_property
    def plane_bytes(self) -> int:
        """Of a packed observation, without its scalars."""
        return (math.prod(self.shape) + 7) // 8

    @property
    def scalars(self) -> int:
        """S."""
        return self.user_scalars if self.binary else math.prod(self.shape)


class AdaptedState:
    """One position with the actions that led to it, as `azq._core.State`.

    Every answer of the object is read once and checked before it is believed.
    """

    __slots__ = ("_decisions", "_form", "_history", "_inner", "_legal", "_player")

    def __init__(self, form: GameForm, inner: Any, history: list[int], decisions: int = 0) -> None:
        self._form, self._inner, self._history, self._decisions = form, inner, history, decisions
        self._player: int | None = None  # to move, once asked; the same for the legal actions
        self._legal: list[int] | None = None

    def _broken(self, text: str) -> GameContractError:
        return GameContractError(f"game {self._form.name}: {text} after {len(self._history)} plies")

    def _raised(self, method: str, error: BaseException) -> GameContractError:
        late = " (import files beside this one at its top);" if isinstance(error, ImportError) else ""
        return self._broken(f"{method} raised {type(error).__name__}: {error}{late}")

    def _ask(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._inner, method)(*args)
        except RAISED as error:
            raise self._raised(method, error) from error

    def _read(self, method: str, convert: Callable[[Any], T], wanted: str, *args: Any) -> T:
        try:
            answer = getattr(self._inner, method)(*args)
        except RAISED as error:
            raise self._raised(method, error) from error
        return self._converted(answer, method, convert, wanted)

    def _converted(self, answer: Any, method: str, convert: Callable[[Any], T], wanted: str) -> T:
        try:
            return convert(answer)
        except RAISED:
            raise self._broken(f"{method} gave {reprlib.repr(answer)}, which is not {wanted},") from None

    def current_player(self) -> int:
        if self._player is None:
            self._player = self._whose_turn()
        return self._player

    def _whose_turn(self) -> int:
        # What a search asks of each position is written out, here and below: by way of `_read` it takes twice as long.
        try:
            over = self._inner.is_terminal()
        except RAISED as error:
            raise self._raised("is_terminal", error) from error
        if over if type(over) is bool else self._converted(over, "is_terminal", bool, "true or false"):
            return TERMINAL_PLAYER
        if self._form.chance and self._read("is_chance_node", bool, "true or false"):
            return CHANCE_PLAYER
        try:
            player = self._inner.current_player()
        except RAISED as error:
            raise self._raised("current_player", error) from error
        if type(player) is not int:
            player = self._converted(player, "current_player", index, "a player's number")
        if not 0 <= player < self._form.players:
            raise self._broken(f"current_player is {player}; players are 0..{self._form.players - 1},")
        return player

    def is_terminal(self) -> bool:
        return self.current_player() == TERMINAL_PLAYER

    def is_chance_node(self) -> bool:
        return self.current_player() == CHANCE_PLAYER

    def chance_outcomes(self) -> list[tuple[int, float]]:
        """What may happen, with probabilities that sum to 1."""
        if not self.is_chance_node():
            return []
        pairs = self._read("chance_outcomes", _pairs, "a list of (outcome, probability)")
        numbers = [outcome for outcome, _ in pairs]
        if not all(0 <= number <= MAX_OUTCOME for number in numbers) or len(set(numbers)) != len(numbers):
            raise self._broken(f"chance_outcomes numbers them {numbers[:8]}, not distinct in 0..{MAX_OUTCOME},")
        total = math.fsum(probability for _, probability in pairs)
        if not abs(total - 1.0) <= 1e-4 or min(probability for _, probability in pairs) < 0:
            raise self._broken(f"probabilities of chance_outcomes sum to {total:g}, or one is negative,")
        return pairs

    def legal_actions(self) -> list[int]:
        if self._legal is None:
            self._legal = self._find_legal()
        return list(self._legal)

    def _find_legal(self) -> list[int]:
        player = self.current_player()
        if player == TERMINAL_PLAYER:
            return []
        if player == CHANCE_PLAYER:
            return sorted(outcome for outcome, _ in self.chance_outcomes())
        try:
            answer = self._inner.legal_actions()
        except RAISED as error:
            raise self._raised("legal_actions", error) from error
        if type(answer) is list and answer and ascending_below(answer, self._form.actions):
            return answer.copy()
        actions = self._converted(answer, "legal_actions", lambda given: sorted(map(index, given)), "a list of action numbers")
        if not actions:
            raise self._broken(f"no legal action where player {player} is to move (a pass is an action)")
        if actions[0] < 0 or actions[-1] >= self._form.actions or len(set(actions)) != len(actions):
            raise self._broken(f"legal_actions {actions[:8]} are not distinct numbers below num_distinct_actions")
        return actions

    def legal_actions_mask(self) -> list[int]:
        mask = [0] * self._form.actions
        for action in self.legal_actions():
            mask[action] = 1
        return mask

    def apply_action(self, action: int) -> None:
        """Plays a legal action; raises `IllegalActionError` naming the legal ones."""
        action, legal = int(action), self._find_legal() if self._legal is None else self._legal
        if action not in legal:
            rest = f"legal actions: {', '.join(map(str, legal))}" if legal else "the game is over"
            raise IllegalActionError(f"action {action} is illegal after {len(self._history)} plies; {rest}")
        if self._player != CHANCE_PLAYER:
            self._decisions += 1
            if self._decisions > self._form.longest:
                raise self._broken(
                    f"no end after the {self._form.longest} plies that max_game_length() allows (10000 where it is not written),"
                )
        elif len(self._history) >= MAX_PLIES:
            raise self._broken("chance goes on and on")
        try:
            self._inner.apply_action(action)
        except RAISED as error:
            raise self._raised("apply_action", error) from error
        self._history.append(action)
        self._player = self._legal = None

    def returns(self) -> list[float]:
        """One number a player in [-1, 1], a score on its scale; zeros before the end."""
        players = self._form.players
        if not self.is_terminal():
            return [0.0] * players
        values = self._read("returns", lambda answer: [float(value) / self._form.utility for value in answer], "a list of numbers")
        if self._form.scores and len(values) == 1:
            return [self._value_of(values[0], self._form.scores)]
        if len(values) != players:
            raise self._broken(f"returns has {len(values)} numbers for {players} players")
        if any(not -1.0 <= value <= 1.0 for value in values):
            raise self._broken(f"returns {values} leave [-1, 1]; scale them;")
        if players == 2 and abs(values[0] + values[1]) > 1e-6:
            raise self._broken(f"returns {values} of two players do not sum to 0")
        return values

    def _value_of(self, score: float, scale: ScoreScale) -> float:
        if not scale[0] <= score <= scale[1]:
            raise self._broken(f"returns gave the score {score:g}, scores() said {scale[0]:g} to {scale[1]:g},")
        return value_of(score, scale)

    def raw_observation(self, player: int) -> NDArray[np.float32]:
        """What the object shows a player, unpacked; raises `GameContractError` where the shape is not that of the start."""
        return self._numbers(self._observed(player)).copy()

    def _observed(self, player: int) -> Any:
        try:
            return self._form.observe(self._inner, player)
        except RAISED as error:
            raise self._raised("observation_tensor", error) from error

    def _numbers(self, answer: Any) -> NDArray[np.float32]:
        raw = self._converted(answer, "observation_tensor", lambda given: np.asarray(given, np.float32), "an array of numbers")
        if self._form.shape and raw.shape != self._form.shape:
            raise self._broken(f"observation_tensor has shape {raw.shape}, at the start it had {self._form.shape},")
        return raw

    def observation_tensor(self, player: int | None = None) -> NDArray[np.float32]:
        if not self._form.binary:
            return np.zeros(self._form.planes, np.float32)
        bits = np.unpackbits(self._packed_bits(self._viewer(player), 0), count=math.prod(self._form.shape), bitorder="little")
        return bits.reshape(self._form.planes).astype(np.float32)

    def scalars(self, player: int | None = None) -> NDArray[np.int8]:
        viewer = self._viewer(player)
        if not self._form.binary:
            numbers: NDArray[np.int8] = np.clip(np.rint(self.raw_observation(viewer).ravel() * self._form.scale), -127, 127).astype(np.int8)
            return numbers
        if not self._form.scalars:
            return np.zeros(0, np.int8)
        return self.raw_scalars(viewer).astype(np.int8)

    def raw_scalars(self, player: int) -> NDArray[np.int64]:
        """What the object's `scalars` says to a player, checked."""
        numbers = self._read(
            "scalars", lambda answer: np.asarray([index(number) for number in answer], np.int64), "a list of whole numbers", player
        )
        if len(numbers) and not -127 <= numbers.min() <= numbers.max() <= 127:
            raise self._broken(f"scalars {numbers.tolist()[:8]} leave -127..127; use units in which they are of the order of 16;")
        if self._form.user_scalars >= 0 and len(numbers) != self._form.user_scalars:
            raise self._broken(f"scalars has {len(numbers)} numbers, at the start {self._form.user_scalars},")
        return numbers

    def packed_observation(self, player: int | None = None) -> NDArray[np.uint8]:
        """(P,): the planes' bits, then the scalars."""
        if not self._form.binary:
            return self.scalars(player).view(np.uint8)
        viewer, scalars = self._viewer(player), self._form.scalars
        row = self._packed_bits(viewer, scalars)
        if scalars:
            row[-scalars:] = self.scalars(viewer).view(np.uint8)
        return row

    def _packed_bits(self, player: int, room: int) -> NDArray[np.uint8]:
        """The planes' bits, and room for so many bytes after them."""
        form, answer = self._form, self._observed(player)
        row: NDArray[np.uint8] = np.empty(form.plane_bytes + room, np.uint8)
        if type(answer) is list and form.shape == (len(answer),) and pack_list(answer, row):
            return row
        raw = self._numbers(answer).ravel()
        odd = pack_bits(raw, row)
        if odd >= 0:
            raise self._broken(f"observation_tensor holds {raw[odd]}; write planes of 0 and 1, and counts into scalars(player);")
        return row

    def _viewer(self, player: int | None) -> int:
        return max(self.current_player(), 0) if player is None else player

    def history(self) -> list[int]:
        """Actions and outcomes so far; empty at the start of a position that was read from the game's own notation."""
        return list(self._history)

    def notation(self) -> str:
        """In the game's own notation, or the actions so far, separated by commas."""
        if self._form.has_notation:
            return str(self._ask("notation"))
        return ",".join(map(str, self._history))

    def action_to_string(self, action: int) -> str:
        """In the game's words, or the number."""
        return str(self._ask("action_to_string", action)) if callable(getattr(self._inner, "action_to_string", None)) else str(action)

    def information_state_string(self, player: int | None = None) -> str:
        """All that a player knows; without secrets, the actions so far."""
        if not self._form.hidden:
            return ",".join(map(str, self._history))
        return str(self._ask("information_state_string", self._viewer(player)))

    def resample_from_infostate(self, player: int, rng: int | Callable[[], float]) -> AdaptedState:
        """A position the player cannot tell from this one; without secrets, a copy.

        `rng` is a seed or a function giving numbers in [0, 1). The history is that of the new position where the object tells it.
        """
        if not self._form.hidden:
            return self.clone()
        source = np.random.default_rng(rng).random if isinstance(rng, int) else rng
        try:
            twin = self._form.redraw(self._inner, player, source)
        except RAISED as error:
            raise self._raised("resample_from_infostate", error) from error
        if twin is None or twin is self._inner:
            raise self._broken("resample_from_infostate gave its own position; return a new one;")
        history = [int(action) for action in twin.history()] if callable(getattr(twin, "history", None)) else list(self._history)
        return AdaptedState(self._form, twin, history, self._decisions)

    def margin(self, player: int) -> float:
        return 0.0

    def clone(self) -> AdaptedState:
        """A copy that goes its own way: the object's `clone`, or a deep copy."""
        own = getattr(self._inner, "clone", None)
        try:
            inner = own() if callable(own) else copy.deepcopy(self._inner)
        except RAISED as error:
            what = "clone" if callable(own) else "copying the position"
            advice = "" if callable(own) else "; write clone(self);"
            raise self._broken(f"{what} raised {type(error).__name__}: {error}{advice}") from error
        twin = AdaptedState(self._form, inner, self._history.copy(), self._decisions)
        twin._player, twin._legal = self._player, self._legal  # lists of legal actions are never changed, only replaced
        return twin

    def __str__(self) -> str:
        return str(self._ask("__str__"))


def _pairs(answer: Any) -> list[tuple[int, float]]:
    pairs = [(index(outcome), float(probability)) for outcome, probability in answer]
    if not pairs:
        raise ValueError("no outcome")
    return pairs
