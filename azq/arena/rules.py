"""Players by rules of thumb, one a game; each chooses by a state in which all that is hidden from its player to move was drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from azq import _core
from azq.errors import ConfigError

ANIMALS = 12
ANIMAL_POINTS = (4, 4, 4, 3, 3, 2, 4, 3, 2, 3, 2, 2)  # by strength, the skunk first
PLACES = (0.9, 0.8, 0.3, 0.2, 0.0, 1.0, -0.5)  # what a point is worth at queue index 0..4, in the bar, and out
LATE_PLIES = 8  # with fewer plies left a queue loses its worth, for less of it will ever move

RANKS = "23456789TJQKA"
TRUMP_WORTH = {"A": 1.0, "K": 0.9, "Q": 0.75, "J": 0.6, "T": 0.5, "9": 0.4, "8": 0.3, "7": 0.25}
TRUMP_FLOOR = 0.2
SIDE_WORTH = {"A": 0.65, "K": 0.4, "Q": 0.2, "J": 0.1}
SIDE_PLAYERS = 4  # the table these were guessed for; more players, more trumps against a side suit


class GreedyBeasty:
    """Plays whatever leaves the best position by its own count, one card ahead, the points of the others against it in equal parts.

    `scoring`: as the game's parameter; without points every animal counts 1.
    """

    def __init__(self, scoring: Literal["points", "count"] = "points") -> None:
        points = np.array(ANIMAL_POINTS if scoring == "points" else (1,) * ANIMALS, dtype=np.float32)
        self._worth = np.outer(PLACES, points).astype(np.float32)[:, None, :]

    def best_action(self, state: _core.State) -> int:
        """Its action; reads only what its player to move observes. Ties go to the lowest action."""
        player = state.current_player()
        actions = state.legal_actions()
        if len(actions) == 1:
            return actions[0]
        values = []
        for action in actions:
            after = state.clone()
            after.apply_action(action)
            values.append(self._value(after.observation_tensor(player), after.scalars(player)))
        return actions[int(np.argmax(values))]

    def _value(self, planes: NDArray[np.float32], scalars: NDArray[np.int8]) -> float:
        """Of the viewer's observation: planes (9, 1, 12 n), the first seven of them PLACES; after the points the plies left."""
        seats = planes.shape[2] // ANIMALS
        by_place = (planes[: len(PLACES)].reshape(len(PLACES), seats, ANIMALS) * self._worth).sum(axis=2)
        queued = min(1.0, float(scalars[1 + seats]) / LATE_PLIES)
        by_seat = queued * by_place[:5].sum(axis=0) + by_place[5:].sum(axis=0)
        return float(by_seat[0] - by_seat[1:].mean())


class RuleBlob:
    """Bids what its cards are worth on their own, then wins cheaply what it needs and ducks the rest."""

    def best_action(self, state: _core.State) -> int:
        view = BlobView.of(state)
        names = {state.action_to_string(action): action for action in state.legal_actions()}
        if view.bid is None:
            bids = [int(name.split()[1]) for name in names]
            wanted = view.worth()
            return names[f"bid {min(bids, key=lambda bid: (abs(bid - wanted), bid))}"]
        return names[view.card(list(names))]


@dataclass(frozen=True, slots=True)
class BlobView:
    """What the player to move sees of a round of Blob."""

    hand: tuple[str, ...]
    trump: str
    players: int
    cards: int
    bid: int | None  # None while bidding
    tricks: int
    table: tuple[str, ...]  # cards of the trick at hand, in order

    @classmethod
    def of(cls, state: _core.State) -> Self:
        """From the line of `State.notation`, of which it uses the mover's own hand and what all players have seen."""
        head, hands, bids, plays, _ = state.notation().split("|")
        words = {word[0]: word[1:] for word in head.split()}
        dealt = [hand.split() for hand in hands.split("/")]
        played, declared = plays.split(), [int(bid) for bid in bids.split()]
        players, dealer, me = len(dealt), int(words["d"]), state.current_player()
        order = [(dealer + 1 + i) % players for i in range(players)]
        bid = declared[order.index(me)] if len(declared) == players else None
        hand = tuple(card for card in dealt[me] if card not in played)
        owner = {card: player for player, cards in enumerate(dealt) for card in cards}
        tricks = sum(owner[_winner(played[i : i + players], words["t"])] == me for i in range(0, len(played) - players + 1, players))
        table = tuple(played[len(played) - len(played) % players :]) if len(played) % players else ()
        return cls(hand, words["t"], players, int(words["c"]), bid, tricks, table)

    def worth(self) -> float:
        """Tricks that the hand may expect to take."""
        side = SIDE_PLAYERS / self.players
        return sum(
            max(TRUMP_WORTH.get(card[0], 0.0), TRUMP_FLOOR) if card[1] == self.trump else SIDE_WORTH.get(card[0], 0.0) * side
            for card in self.hand
        )

    def card(self, legal: Sequence[str]) -> str:
        """Wins as cheaply as it can while tricks are missing, otherwise gets rid of the most dangerous card that does not win."""
        missing = (self.bid or 0) - self.tricks
        ranked = sorted(legal, key=lambda card: (card[1] == self.trump, RANKS.index(card[0])))
        if not self.table:
            return ranked[-1] if missing > 0 else ranked[0]
        winners = [card for card in ranked if _winner([*self.table, card], self.trump) == card]
        losers = [card for card in ranked if card not in winners]
        last = len(self.table) == self.players - 1
        if missing > 0:
            return (winners[0] if last else winners[-1]) if winners else ranked[0]
        return losers[-1] if losers else (winners[-1] if last else winners[0])


def _winner(trick: Sequence[str], trump: str) -> str:
    led = trick[0][1]
    return max(trick, key=lambda card: (card[1] == trump, card[1] == led, RANKS.index(card[0])))


ALIVE, ROOM, JOINS = 200_000.0, 270.0, 700.0  # of a line that does not end the game, of an empty cell, of neighbours that are alike
ORDER, ORDER_POWER = 47.0, 4.0  # what a line that rises and falls loses
CROWD, CROWD_POWER = 11.0, 3.5  # what many large tiles lose against one that is the sum of them


class Lines:
    """One move ahead: plays what leaves the best lines, before chance places a tile."""

    def best_action(self, state: _core.State) -> int:
        """Its action; ties go to the lowest."""
        return max(state.legal_actions(), key=lambda action: worth(_after(state, action)))


def _after(state: _core.State, action: int) -> list[list[int]]:
    """The rows, as powers of two, once an action has slid them."""
    after = state.clone()
    after.apply_action(action)
    board = after.notation().split(" ")[0]
    return [[0 if tile == "." else int(tile).bit_length() - 1 for tile in row.split(",")] for row in board.split("/")]


def worth(rows: Sequence[Sequence[int]]) -> float:
    """Of a board, the sum over its rows and columns."""
    return sum(_line(tuple(line)) for line in (*rows, *zip(*rows, strict=True)))


@cache
def _line(line: tuple[int, ...]) -> float:
    room, crowd = sum(power == 0 for power in line), sum(float(power) ** CROWD_POWER for power in line)
    tiles = [power for power in line if power]
    joins = sum(left == right for left, right in pairwise(tiles))
    steps: list[float] = [float(left) ** ORDER_POWER - float(right) ** ORDER_POWER for left, right in pairwise(line)]
    falls, rises = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    value: float = ALIVE + ROOM * room + JOINS * joins - ORDER * min(falls, rises) - CROWD * crowd
    return value


RULE_BOOKS: dict[str, type[GreedyBeasty | RuleBlob | Lines]] = {"2048": Lines, "beasty_bar": GreedyBeasty, "blob": RuleBlob}


def rule_book(game: _core.Game) -> GreedyBeasty | RuleBlob | Lines:
    """The rules of thumb of a game; raises `ConfigError` for a game without."""
    if game.name not in RULE_BOOKS:
        raise ConfigError(f"no rule player for {game.name}; there is one for {', '.join(RULE_BOOKS)}")
    return RULE_BOOKS[game.name]()
