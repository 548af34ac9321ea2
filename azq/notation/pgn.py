"""PGN (Edwards, 1994) as people write it: a file into games of words, and words into moves of OpenSpiel's chess. Pure.

A game ends with its result, or where another's tags or a first move begin. Tags that change the start or the rules are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from azq.errors import ConfigError, IllegalActionError
from azq.games import Game, State
from azq.notation.text import BLANK, EntryKind, FileEntry, Found, Replaying, shown

CHESS = "openspiel:chess"
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -"
SIGNS = {"1-0": 1, "1:0": 1, "0-1": -1, "0:1": -1, "1/2-1/2": 0, "1/2": 0, "1/2:1/2": 0, "½-½": 0}
USUAL = {
    "FEN": ("", START.lower()),
    "SETUP": ("", "0"),
    "VARIANT": ("", "standard", "normal", "chess", "from position"),
    "ODDS": ("", "none", "no", "-", "0"),
    "HANDICAP": ("", "none", "no", "-", "0"),
}
FILES = "abcdefgh"
WHITE = 1  # the player of OpenSpiel who moves first

_TOKEN = re.compile(
    r"""(?P<tag>\[\s*(?P<name>\w+)\s*"(?P<value>(?:\\.|[^"\\\n])*)"\s*\]|^[^\S\n]*\[\s*(?P<name2>\w+)\s*"(?P<value2>[^\n]*)"\s*\](?=\s*$))
    |(?P<note>\{[^}\n]*(?:\n(?!\s*\[\w+\s+")[^}\n]*)*(?P<end>\})?|;[^\n]*|^%[^\n]*|\$\d+|[\s\0\ufeff]+)
    |(?P<result>\*|(?:1[-:]0|0[-:]1|1/2[-:]1/2|½-½|1/2)(?![\w/:-]))
    |(?P<bracket>[()])
    |(?P<number>\d+(?=\s*\.|\s)|\.+|…)
    |(?P<word>[^\s(){};\[\]$.*…][^\s(){};\[\]$*]*(?:\([QRBN]\))?)
    |(?P<other>.)""",
    re.VERBOSE | re.MULTILINE,
)
_ASIDE = re.compile(r"[!?+#=†‡~]+|[-+=/∓±]{2,3}|mate|(?:dbl|dis)?\.?ch\.?|dbl\.?|e\.?p\.?|N|D", re.IGNORECASE)
_LONG = re.compile(r"([KQRBN]?)([a-h]?)([1-8]?)([a-h][1-8][QRBN]?)")
_CASTLING = re.compile(r"K?e(?:1(?=.1)|8(?=.8))([gc])[18]")


def find_games(_: Game, text: str) -> Iterator[Found]:
    """The games of a file, in its order."""
    game = _Game()
    for token in _TOKEN.finditer(text):
        name = (token["name"] or token["name2"] or "").upper()
        first = token["number"] == "1" and game.moves > 1 and game.whole and not text.startswith("...", token.end())
        if first or (name and (game.moves or not game.whole or name in game.tags)):
            yield from game.result()
            game = _Game()
        game.take(token, name)
        if token["result"] and game.whole:
            yield from game.result()
            game = _Game()
    yield from game.result()


class _Game:
    """One game as its tokens come; `whole` while what comes is surely its own, not a comment or a variation that was not closed."""

    def __init__(self) -> None:
        self.moves, self.whole = 0, True
        self.tags: dict[str, str] = {}
        self._at: int | None = None
        self._entries: list[FileEntry] = []
        self._depth, self._opened, self._end = 0, 0, ""
        self._problem: tuple[int, str] | None = None

    def take(self, token: re.Match[str], name: str) -> None:
        at, text = token.start(), token[0]
        if token["note"] and (text[0] != "{" or token["end"]):
            return
        self._at = at if self._at is None else self._at
        if name:
            self.tags[name] = value = token["value"] if token["value"] is not None else token["value2"]
            self._entries.append(FileEntry(EntryKind.SETUP if name in USUAL else EntryKind.NOTE, name, value, at))
        elif token["bracket"]:
            self._bracket(text, at)
        elif token["other"] or token["note"]:
            self.whole = False
            self._broken(at, "a comment is not closed" if token["note"] else f"{shown(token.string[at : at + 30])} is no PGN")
        elif token["result"] and not self._depth:
            self._end = text
        elif token["word"] and not self._depth:
            aside = text != "--" and _ASIDE.fullmatch(text)
            self._entries.append(FileEntry(EntryKind.NOTE if aside else EntryKind.MOVE, "", text, at))
            self.moves += not aside
            if text == "O-O" and token.end() == len(token.string):
                self._broken(at, "O-O may be cut from O-O-O")

    def _bracket(self, text: str, at: int) -> None:
        self._opened = at if self._depth == 0 else self._opened
        self._depth += 1 if text == "(" else -1
        if self._depth < 0:
            self._depth = 0
            self._broken(at, "one `)` too many")
        self.whole = not self._depth and (self._problem is None or self.whole)

    def result(self) -> Iterator[Found]:
        """What the game came to; nothing for an empty game."""
        if self._at is None:
            return
        if self._depth:
            self._broken(self._opened, "a variation is not closed")
        ends = [end for end in (self._end, self.tags.get("RESULT", "").strip()) if end in SIGNS]
        stray = not self._entries and not self._end
        yield Found(self._at, self._entries, SIGNS[ends[0]] if ends else None, self._problem, stray=stray)

    def _broken(self, at: int, reason: str) -> None:
        self._problem = self._problem or (at, reason)


class ChessPlay(Replaying):
    """Player 0 is black."""

    def sign(self, result: int) -> int:
        return -result

    def __call__(self, entry: FileEntry) -> None:
        if entry.kind is EntryKind.SETUP:
            if entry.name != "SETUP" or not any(other.name == "FEN" for other in self.entries):  # which says more
                _check(entry)
            return
        legal = self.state.legal_actions()
        texts = [_plain(self.state.action_to_string(action)) for action in legal]
        wanted = _plain(entry.value)
        action = legal[texts.index(wanted)] if wanted in texts else self._long(wanted, dict(zip(legal, texts, strict=True)))
        if action is None:
            raise IllegalActionError(f"{entry.value} is no legal move")
        self.state.apply_action(action)

    def _long(self, wanted: str, legal: dict[int, str]) -> int | None:
        """The one move that a text with its square of departure means: `Ng1f3`, `e2e4`, `e1g1`, `e7e8q`."""
        if castling := _CASTLING.fullmatch(wanted):
            wanted = "O-O" if castling[1] == "g" else "O-O-O"
            return next((action for action, text in legal.items() if text == wanted), None)
        parts = _LONG.fullmatch(wanted[:-1] + wanted[-1:].upper() if wanted[-2:-1].isdecimal() else wanted)
        if parts is None:
            return None
        piece, column, row, target = parts.groups()
        alike = [action for action, text in legal.items() if text.startswith(piece) and text.endswith(target)]
        meant = [action for action in alike if any(column in left and row in left for left in self._left(action))]
        return meant[0] if len(meant) == 1 else None

    def _left(self, action: int) -> list[str]:
        """The squares that a move empties of the mover's own."""
        after = self.state.clone()
        after.apply_action(action)
        white = self.state.current_player() == WHITE
        squares = enumerate(zip(_board(self.state), _board(after), strict=True))
        return [f"{FILES[at % 8]}{8 - at // 8}" for at, (old, new) in squares if old != "." == new and old.isupper() == white]


def _check(entry: FileEntry) -> None:
    value = " ".join(entry.value.lower().split())
    if entry.name == "FEN":
        value = " ".join(value.split()[:4])
    if value in USUAL[entry.name]:
        return
    if entry.name == "VARIANT":
        raise ConfigError(f"it is a game of {entry.value}, not of chess (Variant)")
    raise ConfigError(f"it begins from another position ({entry.name} {shown(entry.value)})")


def _board(state: State) -> str:
    """What stands on the 64 squares, from a8; a dot where nothing does."""
    return re.sub(r"\d", lambda count: "." * int(count[0]), str(state).split()[0]).replace("/", "")


def _plain(word: str) -> str:
    """A move without marks of what it does: checks, captures, promotion's sign, dots."""
    bare = re.sub(r"e\.?p\.?$|(?:mate|ch)$|[+#!?=x:()†‡]|^\d+\.+", "", word.strip(BLANK)).replace("0", "O").replace("o", "O")
    return bare if bare.startswith("O") else bare.removeprefix("P").replace("-", "") or bare
