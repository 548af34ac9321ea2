"""A rule player for Blob: bids what its cards are worth on their own, then wins cheaply what it needs and ducks the rest.

It reads the line of `State.notation`, of which it uses its own hand and what everybody has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from azq._core import State

RANKS = "23456789TJQKA"
TRUMP_WORTH = {"A": 1.0, "K": 0.9, "Q": 0.75, "J": 0.6, "T": 0.5, "9": 0.4, "8": 0.3, "7": 0.25}
TRUMP_FLOOR = 0.2
SIDE_WORTH = {"A": 0.65, "K": 0.4, "Q": 0.2, "J": 0.1}
SIDE_PLAYERS = 4  # the table these were guessed for; more players, more trumps against a side suit


@dataclass(frozen=True, slots=True)
class View:
    """What the player to move sees."""

    hand: tuple[str, ...]
    trump: str
    players: int
    cards: int
    bid: int | None  # None while bidding
    tricks: int
    table: tuple[str, ...]  # cards of the trick at hand, in order


class RuleBlob:
    """Chooses for the player to move of each state."""

    def choose(self, states: Sequence[State]) -> list[int]:
        """One action a state."""
        return [_choose(state) for state in states]


def _choose(state: State) -> int:
    view = look(state)
    names = {state.action_to_string(action): action for action in state.legal_actions()}
    if view.bid is None:
        bids = [int(name.split()[1]) for name in names]
        wanted = worth(view)
        return names[f"bid {min(bids, key=lambda bid: (abs(bid - wanted), bid))}"]
    return names[play(view, list(names))]


def look(state: State) -> View:
    """The view of the player to move, from the state's notation."""
    head, hands, bids, plays, _ = state.notation().split("|")
    words = {word[0]: word[1:] for word in head.split()}
    dealt = [hand.split() for hand in hands.split("/")]
    played, said = plays.split(), [int(bid) for bid in bids.split()]
    players, dealer, me = len(dealt), int(words["d"]), state.current_player()
    order = [(dealer + 1 + i) % players for i in range(players)]
    bid = said[order.index(me)] if len(said) == players else None
    hand = tuple(card for card in dealt[me] if card not in played)
    owner = {card: player for player, cards in enumerate(dealt) for card in cards}
    tricks = sum(owner[_winner(played[i : i + players], words["t"])] == me for i in range(0, len(played) - players + 1, players))
    table = tuple(played[len(played) - len(played) % players :]) if len(played) % players else ()
    return View(hand, words["t"], players, int(words["c"]), bid, tricks, table)


def worth(view: View) -> float:
    """Tricks that a hand may expect to take."""
    side = SIDE_PLAYERS / view.players
    return sum(
        max(TRUMP_WORTH.get(card[0], 0.0), TRUMP_FLOOR) if card[1] == view.trump else SIDE_WORTH.get(card[0], 0.0) * side
        for card in view.hand
    )


def play(view: View, legal: Sequence[str]) -> str:
    """Wins as cheaply as it can while tricks are missing, otherwise gets rid of the most dangerous card that does not win."""
    missing = (view.bid or 0) - view.tricks
    ranked = sorted(legal, key=lambda card: _danger(card, view.trump))
    if not view.table:
        return ranked[-1] if missing > 0 else ranked[0]
    winners = [card for card in ranked if _winner([*view.table, card], view.trump) == card]
    losers = [card for card in ranked if card not in winners]
    last = len(view.table) == view.players - 1
    if missing > 0:
        return (winners[0] if last else winners[-1]) if winners else ranked[0]
    return losers[-1] if losers else (winners[-1] if last else winners[0])


def _danger(card: str, trump: str) -> tuple[bool, int]:
    return card[1] == trump, RANKS.index(card[0])


def _winner(trick: Sequence[str], trump: str) -> str:
    led = trick[0][1]
    return max(trick, key=lambda card: (card[1] == trump, card[1] == led, RANKS.index(card[0])))
