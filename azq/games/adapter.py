"""A game written in Python, or any with OpenSpiel's method names, as azq's own: the face of `azq._core.Game` and `State`.

Letters: C planes, H rows, W columns, S scalars, A actions, T plies, P bytes of a packed observation, n players.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.errors import AzqError, ConfigError, GameContractError, IllegalActionError
from azq.games.adapted_state import MAX_OUTCOME, MAX_PLIES, RAISED, AdaptedState, GameForm, Redraw
from azq.games.scores import ScoreScale

SCALE = 16.0  # numbers that are no bits travel as int8, this many to one


class AdaptedGame:
    """Rules given as a Python object.

    `make()` gives a fresh position, an object with OpenSpiel's method names: current_player, legal_actions, apply_action, is_terminal,
    returns, observation_tensor(player), and optionally clone, is_chance_node with chance_outcomes, information_state_string(player)
    with resample_from_infostate(player, rng), scalars(player), action_to_string. `rules`: what may have symmetries(), and
    state_from_notation(text) to the position's notation(), where actions lie on the board: `action_layout`, "cells" or "columns", and
    token_groups(), which bits of the observation belong together.
    `binary`, `scale`, `utility`, `scores`, `observe` and `redraw`: see `GameForm`; `lacks`: methods of the object that the game has not.
    Its own methods are those of `azq._core.Game`.
    Raises `GameContractError` naming what is wrong.
    """

    def __init__(
        self,
        name: str,
        params: Mapping[str, Any],
        make: Callable[[], Any],
        *,
        players: int,
        actions: int,
        rules: Any = None,
        binary: bool = True,
        scale: float = SCALE,
        utility: float = 1.0,
        max_length: int = 10_000,
        scores: ScoreScale | None = None,
        lacks: frozenset[str] = frozenset(),
        observe: Callable[[Any, int], Any] = lambda position, player: position.observation_tensor(player),
        redraw: Redraw = lambda position, player, rng: position.resample_from_infostate(player, rng),
    ) -> None:
        self.name, self.params, self._lacks = name, dict(params), lacks
        self._make, self._rules = make, rules
        if not 1 <= players <= 16 or not 1 <= actions <= 65_535:
            raise GameContractError(f"game {name} has {players} players and {actions} actions; azq plays 1..16 with at most 65535")
        first = self._fresh()
        hidden = self._both(first, "information_state_string", first, "resample_from_infostate")
        self._chance = self._both(first, "is_chance_node", first, "chance_outcomes")
        has_notation = self._both(first, "notation", rules, "state_from_notation")
        declared = GameForm(
            name, players, actions, binary, scale, utility, hidden, has_notation, self._chance, observe, redraw, scores, longest=max_length
        )
        self._form = self._observe_once(declared, first)
        self._symmetries = self._read_symmetries()
        self._action_layout = self._read_layout()
        self._token_groups = self._read_token_groups()

    def _fresh(self) -> Any:
        try:
            return self._make()
        except RAISED as error:
            raise GameContractError(f"game {self.name}: a new position raised {type(error).__name__}: {error}") from error

    def _both(self, owner: Any, method: str, other: Any, partner: str) -> bool:
        has, has_partner = (
            name not in self._lacks and callable(getattr(whose, name, None)) for whose, name in ((owner, method), (other, partner))
        )
        if has != has_partner:
            there, missing = (method, partner) if has else (partner, method)
            raise GameContractError(f"game {self.name} has {there}() without {missing}(); write both or none")
        return has

    @staticmethod
    def _observe_once(form: GameForm, first: Any) -> GameForm:
        state = AdaptedState(form, first, [])
        for _ in range(MAX_PLIES):
            if not state.is_chance_node():
                break
            state.apply_action(state.legal_actions()[0])
        shape = np.shape(state.raw_observation(0))
        if len(shape) not in (1, 3) or not all(shape):
            raise GameContractError(f"game {form.name}: observation_tensor has shape {shape}; it must be (C, H, W) or flat")
        counts = form.binary and callable(getattr(first, "scalars", None))
        return dataclasses.replace(form, shape=shape, user_scalars=len(state.raw_scalars(0)) if counts else 0)

    def _read_symmetries(self) -> list[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        _, rows, columns = self.observation_planes()
        identity = np.arange(self._form.actions, dtype=np.int32), np.arange(rows * columns, dtype=np.int32)
        if not callable(getattr(self._rules, "symmetries", None)):
            return [identity]
        try:
            given = [(np.asarray(actions, np.int32), np.asarray(cells, np.int32)) for actions, cells in self._rules.symmetries()]
        except RAISED as error:
            raise GameContractError(f"game {self.name}: symmetries are no pairs (actions, cells): {error}") from error
        for number, pair in enumerate(given):
            for what, permutation, wanted in zip(("actions", "cells"), pair, identity, strict=True):
                if permutation.shape != wanted.shape or not np.array_equal(np.sort(permutation), wanted):
                    raise GameContractError(f"game {self.name}: symmetry {number} does not permute its {len(wanted)} {what}")
        return [identity, *given]

    def _read_layout(self) -> str:
        given, (_, rows, columns) = getattr(self._rules, "action_layout", ""), self.observation_planes()
        places = {"": 0, "cells": rows * columns, "columns": columns}
        if given not in places or places[given] > self._form.actions:
            raise GameContractError(
                f"game {self.name}: action_layout {given!r} with {self._form.actions} actions on {rows} x {columns} cells; "
                "write 'cells' or 'columns' where the first actions name them in turn, or leave it out"
            )
        return str(given)

    def _read_token_groups(self) -> dict[str, NDArray[np.int32]]:
        if not callable(getattr(self._rules, "token_groups", None)):
            return {}
        try:
            given = {str(name): np.asarray(places) for name, places in self._rules.token_groups().items()}
        except RAISED as error:
            raise GameContractError(f"game {self.name}: token_groups() gives no arrays by name: {error}") from error
        bits = int(np.prod(self.observation_planes()))
        for name, places in given.items():
            whole = places.ndim == 2 and places.size and places.dtype.kind in "iu"
            if not whole or not 0 <= places.min() <= places.max() < bits or not re.fullmatch("[a-z][a-z0-9_]{0,31}", name):
                raise GameContractError(
                    f"game {self.name}: token group {name!r} is no array (tokens, bits) of places among the {bits} bits of an "
                    "observation, flattened, under a name of small letters, digits and _"
                )
        return {name: places.astype(np.int32) for name, places in given.items()}

    def num_distinct_actions(self) -> int:
        return self._form.actions

    def num_players(self) -> int:
        return self._form.players

    def max_game_length(self) -> int:
        return self._form.longest

    def new_initial_state(self) -> AdaptedState:
        return AdaptedState(self._form, self._fresh(), [])

    def observation_planes(self) -> tuple[int, int, int]:
        return self._form.planes

    def num_scalars(self) -> int:
        return self._form.scalars

    def packed_size(self) -> int:
        return self._form.scalars + (int(np.prod(self._form.planes)) + 7) // 8

    def value_size(self) -> int:
        return 1 if self._form.players <= 2 else self._form.players

    def max_chance_outcomes(self) -> int:
        """Not known beforehand; what fits a record."""
        return MAX_OUTCOME if self._chance else 0

    def is_chance(self) -> bool:
        return self._chance

    def is_hidden(self) -> bool:
        return self._form.hidden

    def has_margin(self) -> bool:
        """No: only games of the core declare margins, hidden facts and outcomes."""
        return False

    def num_hidden(self) -> int:
        return 0

    def outcome_combination(self) -> None:
        return None

    def scores(self) -> ScoreScale | None:
        return self._form.scores

    def action_layout(self) -> str:
        return self._action_layout

    def token_groups(self) -> dict[str, NDArray[np.int32]]:
        return {name: places.copy() for name, places in self._token_groups.items()}

    def num_symmetries(self) -> int:
        return len(self._symmetries)

    def action_permutation(self, symmetry: int) -> NDArray[np.int32]:
        return self._symmetries[symmetry][0].copy()

    def plane_permutation(self, symmetry: int) -> NDArray[np.int32]:
        return self._symmetries[symmetry][1].copy()

    def state_from_notation(self, text: str) -> AdaptedState:
        """A position in the game's own notation, or its actions separated by commas; raises `ConfigError` naming what is wrong."""
        if self._form.has_notation:
            try:
                return AdaptedState(self._form, self._rules.state_from_notation(text), [])
            except RAISED as error:
                raise ConfigError(f"{self.name} has no position {text!r}: {error}") from error
        state = self.new_initial_state()
        try:
            for part in filter(str.strip, text.split(",")):
                state.apply_action(int(part))
        except ValueError:
            raise ConfigError(f"{self.name} has no position {text!r}: write its actions, separated by commas") from None
        return state

    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
        """As `azq._core.Game.replay`: packed (T, P), masks (T, A), players (T,), returns (n,).

        Raises `IllegalActionError` naming the ply, also where the game itself breaks its contract: such a record does not replay.
        """
        plies, ply = len(actions), 0
        packed = np.zeros((plies, self.packed_size()), np.uint8)
        masks = np.zeros((plies, self._form.actions), np.uint8)
        players = np.zeros(plies, np.int8)
        try:
            state = self.new_initial_state()
            for ply, action in enumerate(actions.tolist()):
                players[ply] = state.current_player()
                if players[ply] >= 0:
                    packed[ply] = state.packed_observation()
                    masks[ply, state.legal_actions()] = 1
                state.apply_action(action)
            return packed, masks, players, np.asarray(state.returns(), np.float32)
        except AzqError as error:
            raise IllegalActionError(f"{error}, at ply {ply} of the replay") from error

    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]:
        return {
            "margins": np.zeros(self._form.players, np.float32),
            "outcomes": np.zeros((self._form.players, 0), np.float32),
            "hidden": np.zeros((len(actions), 0), np.uint8),
            "truncated": False,
        }

    def __repr__(self) -> str:
        return f"Game({self.name!r})"
