"""Beasty Bar written plainly from its rules, with animals by name: an oracle for the core."""

from __future__ import annotations

from dataclasses import dataclass, field

STRENGTH = {
    "lion": 12,
    "hippo": 11,
    "crocodile": 10,
    "snake": 9,
    "giraffe": 8,
    "zebra": 7,
    "seal": 6,
    "chameleon": 5,
    "monkey": 4,
    "kangaroo": 3,
    "parrot": 2,
    "skunk": 1,
}
POINTS = {
    "lion": 2,
    "hippo": 2,
    "crocodile": 3,
    "snake": 2,
    "giraffe": 3,
    "zebra": 4,
    "seal": 2,
    "chameleon": 3,
    "monkey": 3,
    "kangaroo": 4,
    "parrot": 4,
    "skunk": 4,
}
RECURRING = ("hippo", "crocodile", "giraffe")
ORDER = ("lion", "hippo", "crocodile", "snake", "giraffe", "zebra", "seal", "monkey", "skunk")  # of the actions without a choice
BY_STRENGTH = sorted(STRENGTH, key=lambda name: STRENGTH[name])

Animal = tuple[int, str]  # owner, species


def meaning(action: int) -> tuple[str, str, int | None]:
    """The card an action plays, the species it acts as, and its choice: a jump or a queue index."""
    if action <= 8:
        return ORDER[action], ORDER[action], None
    if action <= 11:
        return "kangaroo", "kangaroo", action - 9
    if action <= 16:
        return "parrot", "parrot", None if action == 12 else action - 13
    if action == 17:
        return "chameleon", "chameleon", None
    if action <= 26:
        return "chameleon", ORDER[action - 18], None
    if action <= 28:
        return "chameleon", "kangaroo", action - 26
    return "chameleon", "parrot", action - 29


@dataclass
class PlainBeasty:
    """A table of n players; the gate is at the head of the queue, the next card to draw is chosen by whoever calls `draw`."""

    players: int
    queue: list[Animal] = field(default_factory=list)
    bar: list[Animal] = field(default_factory=list)
    out: list[Animal] = field(default_factory=list)
    hands: list[set[str]] = field(default_factory=list)
    piles: list[set[str]] = field(default_factory=list)
    player: int = 0

    def __post_init__(self) -> None:
        self.hands = self.hands or [set() for _ in range(self.players)]
        self.piles = self.piles or [set(STRENGTH) for _ in range(self.players)]

    def draw(self, player: int, species: str) -> None:
        """Moves a card from a player's pile to his hand."""
        self.piles[player].remove(species)
        self.hands[player].add(species)

    def over(self) -> bool:
        """Nobody has a card left."""
        return not any(self.hands) and not any(self.piles)

    def legal(self) -> list[int]:
        """All actions of the player to move."""
        return [action for action in range(33) if self._allowed(action)]

    def _allowed(self, action: int) -> bool:
        card, species, choice = meaning(action)
        if card not in self.hands[self.player]:
            return False
        copyable = {name for _, name in self.queue if name != "chameleon"}
        if card == "chameleon":
            if species == "chameleon":
                return not copyable
            if species not in copyable:
                return False
        if species == "kangaroo":
            return choice == 0 if not self.queue else choice in (1, 2) and choice <= len(self.queue)
        if species == "parrot":
            return choice is None if not self.queue else choice is not None and choice < len(self.queue)
        return True

    def apply(self, action: int) -> None:
        """Plays a card, lets it act, then the recurring animals, then opens the bar; drawing is left to `draw`."""
        card, species, choice = meaning(action)
        self.hands[self.player].remove(card)
        me = (self.player, card)
        self.queue.append(me)
        self._act(me, species, choice)
        for animal in [a for a in self.queue if a[1] in RECURRING and a != me]:
            if animal in self.queue:
                self._act(animal, animal[1], None)
        if len(self.queue) == 5:
            first, second, third, fourth, last = self.queue
            self.bar += [first, second]
            self.out.append(last)
            self.queue = [third, fourth]
        self.player = (self.player + 1) % self.players

    def _throw_out(self, gone: list[Animal]) -> None:
        self.queue = [a for a in self.queue if a not in gone]
        self.out += gone

    def _act(self, me: Animal, species: str, choice: int | None) -> None:
        others = [a for a in self.queue if a != me]
        if species == "lion":
            if any(name == "lion" for _, name in others):
                self._throw_out([me])
            else:
                self._throw_out([a for a in others if a[1] == "monkey"])
                self.queue = [me] + [a for a in self.queue if a != me]
        elif species == "snake":
            self.queue.sort(key=lambda a: -(9 if a == me else STRENGTH[a[1]]))
        elif species == "seal":
            self.queue.reverse()
        elif species == "monkey":
            self._monkeys(me, others)
        elif species == "skunk":
            kinds = sorted({name for _, name in others if name != "skunk"}, key=lambda name: STRENGTH[name])
            self._throw_out([a for a in others if a[1] in kinds[-2:]])
        elif species == "parrot":
            if choice is not None:
                self._throw_out([self.queue[choice]])
        elif species == "kangaroo":
            self._move_forward(me, choice or 0)
        else:
            self._push_on(me, species)

    def _monkeys(self, me: Animal, others: list[Animal]) -> None:
        if not any(name == "monkey" for _, name in others):
            return
        self._throw_out([a for a in others if a[1] in ("hippo", "crocodile")])
        rest = [a for a in self.queue if a != me]
        monkeys = [a for a in rest if a[1] == "monkey"]
        self.queue = [me, *reversed(monkeys), *(a for a in rest if a[1] != "monkey")]

    def _move_forward(self, me: Animal, places: int) -> None:
        at = self.queue.index(me)
        self.queue.remove(me)
        self.queue.insert(at - places, me)

    def _push_on(self, me: Animal, species: str) -> None:
        """The hippo, the crocodile and the giraffe, which work on whoever stands directly ahead."""
        if species not in RECURRING:
            return
        steps = 1 if species == "giraffe" else 4
        for _ in range(steps):
            at = self.queue.index(me)
            if at == 0:
                return
            ahead = self.queue[at - 1]
            if STRENGTH[ahead[1]] >= STRENGTH[species] or (ahead[1] == "zebra" and species != "giraffe"):
                return
            if species == "crocodile":
                self._throw_out([ahead])
            else:
                self._move_forward(me, 1)

    def points(self, player: int) -> int:
        """Points of a player's animals in the bar."""
        return sum(POINTS[name] for owner, name in self.bar if owner == player)

    def returns(self, scoring: str) -> list[float]:
        """Each player's result under a scoring: 1 for a sole winner, shared among equals."""
        keys = []
        for player in range(self.players):
            own = [STRENGTH[name] for owner, name in self.bar if owner == player]
            keys.append((self.points(player),) if scoring == "points" else (len(own), -sum(own)))
        winners = keys.count(max(keys))
        shares = [1 / winners if key == max(keys) else 0.0 for key in keys]
        return [(self.players * share - 1) / (self.players - 1) for share in shares]
