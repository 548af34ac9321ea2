"""A game written in Python, or anybody's with OpenSpiel's method names, as azq's own: the face of `azq._core.Game` and `State`.

Letters: C planes, H rows, W columns, S scalars, A actions, T plies, P bytes of a packed observation, n players.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq._core import CHANCE_PLAYER, TERMINAL_PLAYER
from azq.errors import ConfigError, GameContractError, IllegalActionError

SCALE = 16  # scalars travel as int8 of this many to one


class AdaptedGame:
    """Rules given as a Python object.

    `make()` gives a fresh position, an object with OpenSpiel's method names: current_player, legal_actions, apply_action, is_terminal,
    returns, observation_tensor(player), and optionally clone, is_chance_node with chance_outcomes, information_state_string(player)
    with resample_from_infostate(player, rng), action_to_string. `binary`: observations hold only 0 and 1 and travel as bits; else
    they travel as int8 scalars, 16 to one. `utility`: by what returns are divided. Raises `GameContractError` naming what is wrong.
    """

    def __init__(
        self,
        name: str,
        params: Mapping[str, Any],
        make: Callable[[], Any],
        *,
        players: int,
        actions: int,
        binary: bool = True,
        utility: float = 1.0,
        max_length: int = 10_000,
    ) -> None:
        self.name = name
        self.params = dict(params)
        self._make = make
        self._players, self._actions = players, actions
        self.binary, self.utility, self._max_length = binary, utility, max_length
        if not 1 <= players <= 16 or not 1 <= actions <= 65_535:
            raise GameContractError(f"game {name} has {players} players and {actions} actions; azq plays 1..16 with at most 65535")
        first = make()
        self._hidden = callable(getattr(first, "resample_from_infostate", None)) and callable(
            getattr(first, "information_state_string", None)
        )
        self._chance = callable(getattr(first, "chance_outcomes", None))
        self.shape = self._observe_once(first)

    def _observe_once(self, first: Any) -> tuple[int, ...]:
        state = AdaptedState(self, first, [])
        while state.is_chance_node():
            state.apply_action(state.legal_actions()[0])
        found = np.shape(state.raw_observation(0))
        if len(found) not in (1, 3) or not all(found):
            raise GameContractError(f"game {self.name}: observation_tensor has shape {found}; it must be (C, H, W) or flat")
        return found

    def num_distinct_actions(self) -> int:
        """A."""
        return self._actions

    def num_players(self) -> int:
        """n."""
        return self._players

    def max_game_length(self) -> int:
        """A bound on the plies of players."""
        return self._max_length

    def new_initial_state(self) -> AdaptedState:
        """A fresh position."""
        return AdaptedState(self, self._make(), [])

    def observation_planes(self) -> tuple[int, int, int]:
        """C, H, W; a flat observation of bits is one row."""
        if not self.binary:
            return 0, 1, 1
        return (self.shape[0], self.shape[1], self.shape[2]) if len(self.shape) == 3 else (1, 1, self.shape[0])

    def num_scalars(self) -> int:
        """S."""
        return 0 if self.binary else int(np.prod(self.shape))

    def packed_size(self) -> int:
        """P."""
        return (int(np.prod(self.shape)) + 7) // 8 if self.binary else self.num_scalars()

    def value_size(self) -> int:
        """V: one value for two players, else one a seat."""
        return 1 if self._players <= 2 else self._players

    def max_chance_outcomes(self) -> int:
        """Not known beforehand; what fits a record."""
        return 65_535 if self._chance else 0

    def is_chance(self) -> bool:
        """Whether chance may act."""
        return self._chance

    def is_hidden(self) -> bool:
        """Whether players know different things."""
        return self._hidden

    def has_margin(self) -> bool:
        """No: only games of the core declare margins."""
        return False

    def num_hidden(self) -> int:
        """0: only games of the core declare hidden facts."""
        return 0

    def outcome_combination(self) -> None:
        """None: only games of the core declare outcomes."""

    def num_symmetries(self) -> int:
        """1: the identity."""
        return 1

    def action_permutation(self, symmetry: int) -> NDArray[np.int32]:
        """The identity (A,)."""
        return np.arange(self._actions, dtype=np.int32)

    def plane_permutation(self, symmetry: int) -> NDArray[np.int32]:
        """The identity (H * W,)."""
        _, rows, columns = self.observation_planes()
        return np.arange(rows * columns, dtype=np.int32)

    def state_from_notation(self, text: str) -> AdaptedState:
        """Raises `ConfigError`: a position is its actions here, separated by commas."""
        state = self.new_initial_state()
        try:
            actions = [int(part) for part in text.split(",") if part.strip()]
        except ValueError:
            raise ConfigError(f"{self.name} has no position {text!r}: write its actions, separated by commas") from None
        for action in actions:
            state.apply_action(action)
        return state

    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
        """As `azq._core.Game.replay`: packed (T, P), masks (T, A), players (T,), returns (n,)."""
        plies = len(actions)
        packed = np.zeros((plies, self.packed_size()), np.uint8)
        masks = np.zeros((plies, self._actions), np.uint8)
        players = np.zeros(plies, np.int8)
        state = self.new_initial_state()
        for ply, action in enumerate(actions.tolist()):
            players[ply] = state.current_player()
            if players[ply] >= 0:
                packed[ply] = state.packed_observation()
                masks[ply, state.legal_actions()] = 1
            state.apply_action(action)
        return packed, masks, players, np.asarray(state.returns(), np.float32)

    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]:
        """Nothing besides the result."""
        return {
            "margins": np.zeros(self._players, np.float32),
            "outcomes": np.zeros((self._players, 0), np.float32),
            "hidden": np.zeros((len(actions), 0), np.uint8),
            "truncated": False,
        }

    def __repr__(self) -> str:
        return f"Game({self.name!r})"


class AdaptedState:
    """One position with the actions that led to it; what the object raises comes out as `GameContractError` naming the method."""

    def __init__(self, game: AdaptedGame, inner: Any, history: list[int]) -> None:
        self._game, self._inner, self._history = game, inner, history

    def _ask(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._inner, method)(*args)
        except Exception as error:
            where = f"after {len(self._history)} plies"
            raise GameContractError(f"game {self._game.name}: {method} raised {type(error).__name__}: {error} {where}") from error

    def current_player(self) -> int:
        """As OpenSpiel: the player to move, -1 chance, -4 nobody."""
        if self._ask("is_terminal"):
            return TERMINAL_PLAYER
        if self.is_chance_node():
            return CHANCE_PLAYER
        player = int(self._ask("current_player"))
        if not 0 <= player < self._game.num_players():
            raise GameContractError(f"game {self._game.name}: current_player is {player}; players are 0..{self._game.num_players() - 1}")
        return player

    def is_terminal(self) -> bool:
        """Whether the game is over."""
        return bool(self._ask("is_terminal"))

    def is_chance_node(self) -> bool:
        """Whether chance is to act."""
        return hasattr(self._inner, "is_chance_node") and bool(self._ask("is_chance_node")) and not self._ask("is_terminal")

    def chance_outcomes(self) -> list[tuple[int, float]]:
        """What may happen, with probabilities."""
        return [(int(outcome), float(p)) for outcome, p in self._ask("chance_outcomes")] if self.is_chance_node() else []

    def legal_actions(self) -> list[int]:
        """In ascending order; where chance acts, its outcomes."""
        if self._ask("is_terminal"):
            return []
        if self.is_chance_node():
            return sorted(outcome for outcome, _ in self.chance_outcomes())
        actions = sorted(int(action) for action in self._ask("legal_actions"))
        if not actions:
            raise GameContractError(
                f"game {self._game.name}: no legal action where player {self.current_player()} is to move; pass is an action"
            )
        if actions[0] < 0 or actions[-1] >= self._game.num_distinct_actions() or len(set(actions)) != len(actions):
            raise GameContractError(
                f"game {self._game.name}: legal_actions {actions[:8]} are not distinct numbers below num_distinct_actions"
            )
        return actions

    def legal_actions_mask(self) -> list[int]:
        """(A,)."""
        mask = [0] * self._game.num_distinct_actions()
        for action in self.legal_actions():
            mask[action] = 1
        return mask

    def apply_action(self, action: int) -> None:
        """Plays a legal action; raises `IllegalActionError` naming the legal ones."""
        legal = self.legal_actions()
        if action not in legal:
            rest = f"legal actions: {', '.join(map(str, legal))}" if legal else "the game is over"
            raise IllegalActionError(f"action {action} is illegal after {len(self._history)} plies; {rest}")
        self._ask("apply_action", action)
        self._history.append(int(action))

    def returns(self) -> list[float]:
        """One number a player in [-1, 1]; zeros before the end."""
        players = self._game.num_players()
        if not self.is_terminal():
            return [0.0] * players
        values = [float(value) / self._game.utility for value in self._ask("returns")]
        if len(values) != players:
            raise GameContractError(f"game {self._game.name}: returns has {len(values)} numbers for {players} players")
        if any(not -1.0 <= value <= 1.0 for value in values):
            raise GameContractError(f"game {self._game.name}: returns {values} leave [-1, 1]; scale them")
        if players == 2 and abs(values[0] + values[1]) > 1e-6:
            raise GameContractError(f"game {self._game.name}: returns {values} of two players do not sum to 0")
        return values

    def raw_observation(self, player: int) -> NDArray[np.float32]:
        """What the object shows a player, unpacked."""
        try:
            return np.asarray(self._ask("observation_tensor", player), np.float32)
        except (TypeError, ValueError) as error:
            raise GameContractError(f"game {self._game.name}: observation_tensor is no array of numbers: {error}") from None

    def observation_tensor(self, player: int | None = None) -> NDArray[np.float32]:
        """(C, H, W)."""
        if not self._game.binary:
            return np.zeros(self._game.observation_planes(), np.float32)
        return self._checked(player).reshape(self._game.observation_planes())

    def scalars(self, player: int | None = None) -> NDArray[np.int8]:
        """(S,), 16 to one."""
        if self._game.binary:
            return np.zeros(0, np.int8)
        return np.clip(np.rint(self._checked(player).ravel() * SCALE), -127, 127).astype(np.int8)

    def packed_observation(self, player: int | None = None) -> NDArray[np.uint8]:
        """(P,)."""
        if self._game.binary:
            return np.packbits(self._checked(player).ravel().astype(np.uint8), bitorder="little")
        return self.scalars(player).view(np.uint8)

    def _checked(self, player: int | None) -> NDArray[np.float32]:
        viewer = self.current_player() if player is None else player
        raw = self.raw_observation(max(viewer, 0))
        if raw.shape != self._game.shape:
            raise GameContractError(
                f"game {self._game.name}: observation_tensor has shape {raw.shape}, at the start it had {self._game.shape}"
            )
        if self._game.binary and not np.isin(raw, (0.0, 1.0)).all():
            odd = raw[~np.isin(raw, (0.0, 1.0))].flat[0]
            raise GameContractError(f"game {self._game.name}: observation_tensor holds {odd}; write planes of 0 and 1")
        return raw

    def history(self) -> list[int]:
        """Actions and outcomes so far."""
        return list(self._history)

    def notation(self) -> str:
        """The actions so far, separated by commas."""
        return ",".join(map(str, self._history))

    def action_to_string(self, action: int) -> str:
        """In the game's words, or the number."""
        if hasattr(self._inner, "action_to_string"):
            return str(self._ask("action_to_string", action))
        return str(action)

    def information_state_string(self, player: int | None = None) -> str:
        """All that a player knows; without secrets, the actions so far."""
        if not self._game.is_hidden():
            return self.notation()
        return str(self._ask("information_state_string", max(self.current_player(), 0) if player is None else player))

    def resample_from_infostate(self, player: int, rng: int | Callable[[], float]) -> AdaptedState:
        """A position the player cannot tell from this one; without secrets, a copy."""
        if not self._game.is_hidden():
            return self.clone()
        source = np.random.default_rng(rng).random if isinstance(rng, int) else rng
        return AdaptedState(self._game, self._ask("resample_from_infostate", player, source), list(self._history))

    def margin(self, player: int) -> float:
        """0."""
        return 0.0

    def clone(self) -> AdaptedState:
        """A copy that goes its own way."""
        inner = self._ask("clone") if hasattr(self._inner, "clone") else copy.deepcopy(self._inner)
        return AdaptedState(self._game, inner, list(self._history))

    def __str__(self) -> str:
        return str(self._inner)


def play_random(state: AdaptedState, choose: Callable[[Sequence[int]], int]) -> list[AdaptedState]:
    """Plays to the end; returns every position where a player was to move."""
    seen = []
    while not state.is_terminal():
        if not state.is_chance_node():
            seen.append(state.clone())
        state.apply_action(choose(state.legal_actions()))
    return seen
