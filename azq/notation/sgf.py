"""SGF (FF[1] to FF[4], red-bean.com/sgf) as people write it: trees into entries, and entries into moves of gomoku, hex and Othello. Pure.

A tree left open ends with the file, or where a node with a root's properties begins another. Text that is no SGF is named with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from azq.errors import ConfigError, IllegalActionError
from azq.games import Game, State
from azq.notation.boards import Coordinates, cells_of
from azq.notation.text import BLANK, EntryKind, FileEntry, Found, Replaying, cannot, shown

NUMBERS = {"othello": 2, "gomoku": 4, "hex": 11}  # GM of the standard
SWAPS = {"swap", "swap-pieces", "swap-sides"}
RESIGNS = {"resign", "resigns", "resigned"}
SETUPS = {"AB", "AW", "AE", "PL", "HA", "GM", "SZ"}
CLOCKS = {"BL", "WL", "OB", "OW", "LT"}
ROOT = {"FF", "GM", "CA", "AP", "SZ", "ST"}  # properties of a root only
ENDED = "one `]` too many"
SIGNS = {"B": 1, "W": -1, "0": 0, "D": 0, "黑": 1, "白": -1}  # by the first letter of RE

_TREE = re.compile(r"\((?=\s*(?:;|[A-Za-z]+\s*\[))")
_TOKEN = re.compile(r"([();])|([A-Za-z]+)\s*(?=\[)|\[((?:\\.|[^\]\\])*)\](\]*)|([^\s();\[\]]+|.)", re.DOTALL)
_OPEN_VALUE = re.compile(r";\s*[BW]\[[^\[\]]*$")


def find_games(_: Game, text: str) -> Iterator[Found]:
    """The games of a collection, and text outside of them."""
    at = 0
    while at < len(text):
        tree = _TREE.search(text, at)
        start = tree.start() if tree else len(text)
        outside = text[at:start].lstrip(BLANK)
        if bare := outside.strip(BLANK):
            reason = "one `)` too many" if not bare.strip(f"){BLANK}") else f"{shown(bare)} stands outside of any game"
            place = start - len(outside)
            yield Found(place, problem=(place, reason), stray=True)
        if tree is None:
            return
        reader = _Tree(text, start)
        yield reader.game()
        at = reader.at


class _Tree:
    """The first variation of one tree."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.start, self.at = text, start, start
        self.entries: list[FileEntry] = []
        self._node: list[FileEntry] = []  # of the node that is read, which may turn out to be another tree's root
        self._depth, self._past, self._opened, self._first = 0, False, start, True
        self._name = ""
        self._problem: tuple[int, str] | None = None

    def game(self) -> Found:
        """Reads on to the tree's end."""
        ended = False
        while not ended and (token := self._next()):
            mark, letters, value, _, other = token.groups()
            if letters:
                name = "".join(letter for letter in letters if letter.isupper()) or letters.upper()  # older files write Black for B
                if name in ROOT and self._depth > 1 and self._first:
                    self.at, self._node = self._opened, []
                    break
                self._name = name
            elif value is not None:
                self._value(token)
            elif mark:
                ended = self._structure(token)
            elif other == "[":
                self._broken(token.start(), "a value is not closed")
                self.at = len(self.text)  # no value can follow
                break
            elif other.strip(BLANK):
                self._broken(token.start(), ENDED if other == "]" else f"{shown(self.text[token.start() : token.start() + 30])} is no SGF")
            self.at = token.end()
        self._flush()
        results = [entry.value for entry in self.entries if entry.name == "RE"]
        sign = SIGNS.get(results[0].strip()[:1].upper()) if results else None
        return Found(self.start, self.entries, sign, self._problem)

    def _next(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.at) if self.at < len(self.text) else None

    def _structure(self, token: re.Match[str]) -> bool:
        """Takes a bracket or a node's beginning; whether the tree is at its end."""
        self._flush()
        if token[0] == "(":
            self._depth, self._opened, self._first = self._depth + 1, token.start(), True
        elif token[0] == ")":
            self._depth, self._past = self._depth - 1, True  # whatever comes now is another variation
        else:
            self._first = not self.text[self._opened + 1 : token.start()].strip(BLANK)
        return self._depth == 0

    def _value(self, token: re.Match[str]) -> None:
        value = token[3]
        if not self._name:
            self._broken(token.start(), "a value of no property")
        elif _OPEN_VALUE.search(value) and self._name not in ("B", "W"):
            self._broken(token.start(), f"{self._name} holds a move, as if it were not closed")
        elif value.count("[") < len(token[4]):
            self._broken(token.end() - 1, ENDED)
        self._node.append(_entry(self._name, value.strip(BLANK), token.start()))

    def _broken(self, at: int, reason: str) -> None:
        self._problem = self._problem or (at, reason)

    def _flush(self) -> None:
        self._name = ""
        if not self._past:
            self.entries += self._node
        self._node = []


def _entry(name: str, value: str, at: int) -> FileEntry:
    if name in ("B", "W"):
        plain = value.lower()
        kind = EntryKind.SWAP if plain in SWAPS else EntryKind.RESIGNATION if plain in RESIGNS else EntryKind.MOVE
        return FileEntry(EntryKind.PASS if plain in ("", "tt", "pass") else kind, name, plain, at)
    return FileEntry(EntryKind.SETUP if name in SETUPS else EntryKind.CLOCK if name in CLOCKS else EntryKind.NOTE, name, value, at)


def cells(game: Game) -> Coordinates:
    """The board of a game that SGF tells. Raises `ConfigError`."""
    if game.name not in NUMBERS or game.params.get("swap2"):
        raise cannot("sgf", "gomoku with swap2" if game.name in NUMBERS else game.name, sorted(NUMBERS))
    return cells_of(game)


class BoardPlay(Replaying):
    """Player 0 is black, in hex who moves first.

    Where white does with points such as `a1`, who joins left and right in them, the board is turned over its diagonal; so it is after a
    swap after which the side that swapped moves again, since sides were swapped there, not stones.
    """

    def __init__(self, game: Game, state: State, entries: Sequence[FileEntry]) -> None:
        super().__init__(game, state, entries)
        self._cells = cells(game)
        moves = [entry for entry in entries if entry.kind in (EntryKind.MOVE, EntryKind.SWAP)]
        self._first = moves[0].name if moves and game.name == "hex" else "B"
        placed = next((entry.value for entry in moves if entry.kind is EntryKind.MOVE), "")
        self._go_points = not placed[1:].isdecimal()
        self._turned = self._first == "W" and not self._go_points
        self._result = -1 if self._first == "W" and self._go_points else 1  # Little Golem's RE calls who began B
        self._sides = {entry.at for entry, later in pairwise(moves) if entry.kind is EntryKind.SWAP and later.name == entry.name}
        self._given = {(entry.name, entry.value.lower()) for entry in entries if entry.name in ("AB", "AW")}

    def seat(self, entry: FileEntry) -> int:
        return int(entry.name != self._first)

    def sign(self, result: int) -> int:
        return result * self._result * (1 if self._first == "B" else -1)

    def __call__(self, entry: FileEntry) -> None:
        if entry.kind is EntryKind.SETUP:
            self._check(entry)
            return
        state, swap = self.state, self._cells.swap_action
        if state.current_player() != self.seat(entry) and state.legal_actions() == [self._cells.pass_action]:
            state.apply_action(state.legal_actions()[0])  # many files leave out passes without a choice
        special = {EntryKind.PASS: self._cells.pass_action, EntryKind.SWAP: swap}
        action = special[entry.kind] if entry.kind in special else self._cell(entry.value)
        if entry.kind is EntryKind.SWAP and swap is None:
            raise IllegalActionError(f"{entry.name}[{entry.value}]: the run's hex has no swap; --set run.params.swap=true")
        if action is None or state.current_player() != self.seat(entry) or action not in state.legal_actions():
            raise IllegalActionError(f"{entry.name}[{entry.value}] is no legal move")
        state.apply_action(action)
        if entry.at in self._sides:
            self._first, self._turned = "W" if self._first == "B" else "B", not self._turned

    def _check(self, entry: FileEntry) -> None:
        name, value, game = entry.name, entry.value, self.game
        if name == "GM" and value != str(NUMBERS[game.name]):
            other = "it is GGF, Othello's other format: write it as SGF" if value.isalpha() else f"it is a game of number {value} of SGF"
            raise ConfigError(f"{other}, and {game.name} has {NUMBERS[game.name]}")
        if name == "SZ" and {int(size) if size.isdecimal() else size for size in value.split(":", 1)} != {self._cells.size}:
            raise ConfigError(f"its board has the size {value}, the run's {self._cells.size}; another is --set run.params.size=N")
        usual = {
            "AB": self._given == self._start(),
            "AW": self._given == self._start(),
            "PL": self.state.current_player() == int(value[:1].upper() != self._first),
            "HA": value in ("", "0"),
        }
        if not usual.get(name, name != "AE"):
            raise ConfigError(f"it begins from a position that is set up ({name}[{value}])")

    def _start(self) -> set[tuple[str, str]]:
        """The stones of the start, which files of Othello may name."""
        if self.game.name != "othello":
            return set()
        near, far = chr(96 + self._cells.size // 2), chr(97 + self._cells.size // 2)
        return {("AW", near + near), ("AW", far + far), ("AB", far + near), ("AB", near + far)}

    def _cell(self, point: str) -> int | None:
        """The action of a point such as `cd`, column and row from the top, or in hex `c4`."""
        size = self._cells.size
        if self.game.name == "hex" and point[1:].isdecimal():
            action = self._cells.action(point)
        elif len(point) == 2 and all("a" <= letter <= chr(96 + size) for letter in point):
            action = size * (ord(point[1]) - 97) + ord(point[0]) - 97
        else:
            action = None
        return action if action is None or not self._turned else size * (action % size) + action // size
