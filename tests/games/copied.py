"""A game of the core as a game in Python, with nothing but its rules: what both search alike can be compared on."""

from __future__ import annotations

from typing import Any

from azq import games


class TicTacToe:
    """The core's tic-tac-toe, seen through methods of Python."""

    NAME = "tic_tac_toe"

    def __init__(self) -> None:
        self.game = games.load(self.NAME)
        self.state = self.game.new_initial_state()

    def __getattr__(self, name: str) -> Any:
        if name in ("information_state_string", "resample_from_infostate", "notation", "scalars", "is_chance_node", "chance_outcomes"):
            raise AttributeError(name)
        return getattr(self.state, name)

    def num_players(self) -> int:
        return self.game.num_players()

    def num_distinct_actions(self) -> int:
        return self.game.num_distinct_actions()

    def current_player(self) -> int:
        return self.state.current_player()

    def legal_actions(self) -> list[int]:
        return self.state.legal_actions()

    def apply_action(self, action: int) -> None:
        self.state.apply_action(action)

    def is_terminal(self) -> bool:
        return self.state.is_terminal()

    def returns(self) -> list[float]:
        return self.state.returns()

    def observation_tensor(self, player: int) -> Any:
        return self.state.observation_tensor(player)

    def clone(self) -> TicTacToe:
        twin = object.__new__(type(self))
        twin.game, twin.state = self.game, self.state.clone()
        return twin


class ConnectFour(TicTacToe):
    """The core's connect four."""

    NAME = "connect_four"


class Dice:
    """Who rolls more pips, 1 to 6; before his roll each of `players` may take a safe 5 (1) or roll (0). Alone at the top wins."""

    def __init__(self, players: int = 3) -> None:
        self.players = players
        self.pips: list[int] = []
        self.rolling = False

    def num_players(self) -> int:
        return self.players

    def num_distinct_actions(self) -> int:
        return 2

    def current_player(self) -> int:
        return len(self.pips)

    def legal_actions(self) -> list[int]:
        return [0, 1]

    def is_chance_node(self) -> bool:
        return self.rolling

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return [(pips, 1 / 6) for pips in range(1, 7)]

    def apply_action(self, action: int) -> None:
        if self.rolling:
            self.pips.append(action)
            self.rolling = False
        elif action == 1:
            self.pips.append(5)
        else:
            self.rolling = True

    def is_terminal(self) -> bool:
        return len(self.pips) == self.players

    def returns(self) -> list[float]:
        top = max(self.pips)
        if self.pips.count(top) > 1:
            return [0.0] * self.players
        return [1.0 if pips == top else -1.0 / (self.players - 1) for pips in self.pips]

    def observation_tensor(self, player: int) -> list[int]:
        seen = [int(seat < len(self.pips) and self.pips[seat] >= pips) for seat in range(self.players) for pips in range(1, 7)]
        return [*seen, int(self.rolling)]

    def clone(self) -> Dice:
        twin = Dice(self.players)
        twin.pips, twin.rolling = list(self.pips), self.rolling
        return twin
