"""Blob (Oh Hell), one round, written plainly from its rules: strings for cards, lists for everything else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SUITS = "SHCD"
RANKS = "23456789TJQKA"
CARDS = [rank + suit for suit in SUITS for rank in RANKS]  # in the order of the actions
VARIANTS: list[dict[str, Any]] = [
    {"players": 4, "cards": 5},
    {"players": 3, "cards": 7, "trump": "none"},
    {"players": 5, "cards": 3, "trump": "hearts", "dealer": 2},
    {"players": 8, "cards": 6, "trump": "clubs", "hook": False},
    {"players": 4, "cards": 4, "trump": "any", "any_cards": True},
    {"players": 6, "cards": 2, "scoring": "square"},
    {"players": 7, "cards": 4, "scoring": "plus"},
    {"players": 4, "cards": 6, "scoring": "openspiel", "points_per_trick": 2},
    {"players": 3, "cards": 17, "scoring": "openspiel", "off_bid_penalty": True},
]


@dataclass
class PlainRound:
    """A round after the deal; `trump` is a suit or N."""

    hands: list[list[str]]
    trump: str
    dealer: int
    hook: bool = True
    scoring: str = "exact"
    points_per_trick: int = 1
    off_bid_penalty: bool = False
    bids: dict[int, int] = field(default_factory=dict)
    tricks: list[int] = field(default_factory=list)
    table: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.players = len(self.hands)
        self.cards = len(self.hands[0])
        self.tricks = [0] * self.players
        self.to_move = (self.dealer + 1) % self.players

    def over(self) -> bool:
        """Nobody has a card left."""
        return not any(self.hands)

    def legal(self) -> list[str]:
        """Bids as numbers in words, cards by name."""
        if len(self.bids) < self.players:
            bids = list(range(self.cards + 1))
            if self.hook and self.to_move == self.dealer:
                bids = [bid for bid in bids if bid + sum(self.bids.values()) != self.cards]
            return [f"bid {bid}" for bid in bids]
        hand = self.hands[self.to_move]
        if self.table:
            led = self.table[0][1][1]
            return [card for card in hand if card[1] == led] or list(hand)
        return list(hand)

    def apply(self, what: str) -> None:
        """A bid or a card of the player to move."""
        player = self.to_move
        self.to_move = (player + 1) % self.players
        if what.startswith("bid"):
            self.bids[player] = int(what.split()[1])
            return
        self.hands[player].remove(what)
        self.table.append((player, what))
        if len(self.table) == self.players:
            winner = self._winner()
            self.tricks[winner] += 1
            self.to_move = winner
            self.table = []

    def _winner(self) -> int:
        led = self.table[0][1][1]
        trumps = [entry for entry in self.table if entry[1][1] == self.trump]
        contenders = trumps or [entry for entry in self.table if entry[1][1] == led]
        return max(contenders, key=lambda entry: RANKS.index(entry[1][0]))[0]

    def score(self, player: int) -> int:
        """Points of the round."""
        bid, tricks = self.bids[player], self.tricks[player]
        exact = bid == tricks
        if self.scoring == "openspiel":
            if self.off_bid_penalty and not exact:
                return -abs(tricks - bid) * self.points_per_trick
            return tricks * self.points_per_trick + (10 if exact else 0)
        bonus = {"exact": 10 + bid, "square": 10 + bid * bid, "plus": 5 + tricks}[self.scoring]
        return bonus if exact else 0
