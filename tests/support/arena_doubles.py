"""Small games in Python for tests of the arena: dice and turns of two actions, dealt cards among three; and players to sit there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError, IllegalActionError

CHANCE, TERMINAL = -1, -4


class Rules:
    """What both games share: a name, parameters and states of one class."""

    name = ""
    players = 2
    actions = 0
    hidden = False
    state: type[Position]

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def num_players(self) -> int:
        return self.players

    def num_distinct_actions(self) -> int:
        return self.actions

    def is_chance(self) -> bool:
        return True

    def is_hidden(self) -> bool:
        return self.hidden

    def outcome_combination(self) -> None:
        return None

    def new_initial_state(self) -> Position:
        return self.state()

    def state_from_notation(self, text: str) -> Position:
        return self.state.parse(text)


class Position:
    """A state that is a function of its history; games say what comes next."""

    def __init__(self) -> None:
        self.past: list[int] = []

    @classmethod
    def parse(cls, text: str) -> Position:
        made = cls()
        try:
            for word in text.split():
                made.apply_action(int(word))
        except (ValueError, IllegalActionError):
            raise ConfigError(f"no position {text!r}: numbers of a game so far") from None
        made.past_known = False
        return made

    past_known = True

    def notation(self) -> str:
        return " ".join(map(str, self.past))

    def history(self) -> list[int]:
        return list(self.past) if self.past_known else []

    def clone(self) -> Position:
        copy = type(self)()
        copy.past = list(self.past)
        return copy

    def is_terminal(self) -> bool:
        return self.current_player() == TERMINAL

    def is_chance_node(self) -> bool:
        return self.current_player() == CHANCE

    def chance_outcomes(self) -> list[tuple[int, float]]:
        legal = self.legal_actions()
        return [(outcome, 1 / len(legal)) for outcome in legal]

    def apply_action(self, action: int) -> None:
        if action not in self.legal_actions():
            raise IllegalActionError(f"action {action} is not one of {self.legal_actions()}")
        self.past.append(action)

    def action_to_string(self, action: int) -> str:
        return f"<{action}>"

    def current_player(self) -> int:
        raise NotImplementedError

    def legal_actions(self) -> list[int]:
        raise NotImplementedError


class Walk(Position):
    """Four turns in turn: a throw of 0..2, then the mover steps twice, left (0) or right (1). Most steps right, plus throws, wins."""

    def current_player(self) -> int:
        if len(self.past) == 12:
            return TERMINAL
        return CHANCE if len(self.past) % 3 == 0 else len(self.past) // 3 % 2

    def legal_actions(self) -> list[int]:
        return [] if self.is_terminal() else [0, 1, 2] if self.is_chance_node() else [0, 1]

    def scores(self) -> list[int]:
        return [sum(sum(self.past[start : start + 3]) for start in range(3 * player, 12, 6)) for player in (0, 1)]

    def returns(self) -> list[float]:
        one, other = self.scores()
        value = float((one > other) - (one < other)) if self.is_terminal() else 0.0
        return [value, -value]

    def notation(self) -> str:
        """Finished turns sorted within: two orders of the same steps lead to the same position."""
        whole = len(self.past) // 3 * 3
        turns = [[self.past[at], *sorted(self.past[at + 1 : at + 3])] for at in range(0, whole, 3)]
        return " ".join(str(number) for turn in [*turns, self.past[whole:]] for number in turn)

    def packed_observation(self) -> NDArray[np.uint8]:
        return np.array([len(self.past), *self.scores()], np.uint8)


class WalkGame(Rules):
    name, actions, state = "walk", 2, Walk


class Cards(Position):
    """Three players get two of the cards 0..8 each, one by one, and play one each; the highest wins 1, the others lose a half."""

    def current_player(self) -> int:
        return CHANCE if len(self.past) < 6 else TERMINAL if len(self.past) == 9 else len(self.past) - 6

    def hand(self, player: int) -> list[int]:
        return sorted(card for card in self.past[2 * player : 2 * player + 2] if card not in self.past[6:])

    def legal_actions(self) -> list[int]:
        if self.is_terminal():
            return []
        return [card for card in range(9) if card not in self.past] if self.is_chance_node() else self.hand(self.current_player())

    def returns(self) -> list[float]:
        played = self.past[6:]
        return [1.0 if card == max(played) else -0.5 for card in played] if len(played) == 3 else [0.0] * 3

    def information_state_string(self, player: int) -> str:
        return f"{sorted(self.past[2 * player : 2 * player + 2])} {self.past[6:]}"

    def resample_from_infostate(self, player: int, rng: int) -> Cards:
        """Draws the hands of others who have not played, from what is left; a function of what the player knows and of `rng`."""
        drawn = Cards()
        own = sorted(self.past[2 * player : 2 * player + 2])
        played = self.past[6:]
        left = [card for card in range(9) if card not in own and card not in played]
        random.Random(rng).shuffle(left)
        deal = []
        for seat in range(3):
            known = own if seat == player else [played[seat]] if seat < len(played) else []
            deal += [*known, *(left.pop() for _ in range(2 - len(known)))]
        drawn.past = [*deal, *played]
        return drawn


class CardGame(Rules):
    name, actions, players, hidden, state = "cards", 9, 3, True, Cards


class Choosing:
    """A player by a function of the state; it remembers the seats and histories it was asked for."""

    def __init__(self, game: Any, choose: Callable[[Any], int], name: str = "choosing") -> None:
        self.name = name
        self._game = game
        self._choose = choose
        self.asked: list[list[int]] = []
        self.closed = False

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        from azq.arena.player import position

        self.asked += [list(history) for history in histories]
        return [self._choose(position(self._game, history)) for history in histories]

    def close(self) -> None:
        self.closed = True
