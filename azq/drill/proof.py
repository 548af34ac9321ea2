"""What the ledger says of a run's games against what the disk holds, while no game is on its way between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger's account of every game by its number; what is neither open nor abandoned has to be in the log."""

    opened: int
    open: Set[int] = frozenset()
    abandoned: Mapping[int, str] = field(default_factory=dict)  # number -> reason


@dataclass(frozen=True, slots=True)
class Disk:
    """The games of the segment log."""

    games: Set[int] = frozenset()
    copies: Mapping[int, int] = field(default_factory=dict)  # number -> how often it is there beyond the first time


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Where ledger and disk disagree, and the games that were given up."""

    lost: frozenset[int] = frozenset()  # closed by the ledger's word, and not on disk
    doubled: frozenset[tuple[int, int]] = frozenset()  # (number, which copy) for each copy too many
    unexpected: frozenset[int] = frozenset()  # on disk, though open, abandoned or never opened
    abandoned: frozenset[tuple[int, str]] = frozenset()

    def since(self, before: Discrepancy) -> Discrepancy:
        """What was not found before."""
        return Discrepancy(
            self.lost - before.lost, self.doubled - before.doubled, self.unexpected - before.unexpected, self.abandoned - before.abandoned
        )

    def given_up(self, allowed: str) -> int:
        """Games abandoned for another reason than one that holds `allowed`; all of them where that is empty."""
        return sum(not allowed or allowed not in reason for _, reason in self.abandoned)


def compare(books: Books, disk: Disk) -> Discrepancy:
    """Each game of {1..opened} - open - abandoned has to be on disk, once, and no other."""
    closed = set(range(1, books.opened + 1)) - books.open - books.abandoned.keys()
    return Discrepancy(
        frozenset(closed - disk.games),
        frozenset((uid, copy) for uid, copies in disk.copies.items() for copy in range(1, copies + 1)),
        frozenset(disk.games - closed),
        frozenset(books.abandoned.items()),
    )
