"""PGN (Edwards, 1994) as people write it: a file into games of words, and words into moves of OpenSpiel's chess. Pure.

A game ends with its result, or where another's tags or a first move begin. Tags that change the start or the rules are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from azq.errors import ConfigError, IllegalActionError
from azq.games import Game
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
    |(?P<note>\{[^}\n]*(?:\n(?!\s*\[\w+\s+")[^}\n]*)*\}|;[^\n]*|^%[^\n]*|\$\d+|[\s\0\ufeff]+)
    |(?P<result>\*|(?:1[-:]0|0[-:]1|1/2[-:]1/2|½-½|1/2)(?![\w/:-]))
    |(?P<bracket>[()])
    |(?P<number>\d+(?=\s*\.|\s)|\.+|…)
    |(?P<word>[^\s(){};\[\]$.*…][^\s(){};\[\]$*]*(?:\([QRBN]\))?)
    |(?P<other>.)""",
    re.VERBOSE | re.MULTILINE,
)
_ASIDE = re.compile(r"[!?+#=†‡~]+|[-+=/∓±]{2,3}|mate|(?:dbl|dis)?\.?ch\.?|dbl\.?|e\.?p\.?|N|D", re.IGNORECASE)
_LONG = re.compile(r"([KQRBN]?)([a-h]?)([1-8]?)-?([a-h][1-8])([QRBN]?)")


def found(_: Game, text: str) -> Iterator[Found]:
    """The games of a file, in its order."""
    game = _Game()
    for token in _TOKEN.finditer(text):
        name = (token["name"] or token["name2"] or "").upper()
        first = token["number"] == "1" and game.moves > 1 and game.whole and not text.startswith("...", token.end())
        if first or (name and (game.moves or not game.whole or name in game.tags)):
            yield from game.found()
            game = _Game()
        game.take(token, name)
        if token["result"] and game.whole:
            yield from game.found()
            game = _Game()
    yield from game.found()


class _Game:
    """One game as its tokens come; `whole` while what comes is surely its own, not a comment or a variation that was not closed."""

    def __init__(self) -> None:
        self.moves, self.whole = 0, True
        self.tags: dict[str, str] = {}
        self._at: int | None = None
        self._words: list[FileEntry] = []
        self._depth, self._opened, self._end = 0, 0, ""
        self._problem: tuple[int, str] | None = None

    def take(self, token: re.Match[str], name: str) -> None:
        if token["note"]:
            return
        at, text = token.start(), token[0]
        self._at = at if self._at is None else self._at
        if name:
            self.tags[name] = value = token["value"] if token["value"] is not None else token["value2"]
            self._words.append(FileEntry(EntryKind.SETUP if name in USUAL else EntryKind.NOTE, name, value, at))
        elif token["bracket"]:
            self._bracket(text, at)
        elif token["other"]:
            self.whole = False
            self._broken(at, "a comment is not closed" if text == "{" else f"{shown(token.string[at : at + 30])} is no PGN")
        elif token["result"] and not self._depth:
            self._end = text
        elif token["word"] and not self._depth:
            aside = text != "--" and _ASIDE.fullmatch(text)
            self._words.append(FileEntry(EntryKind.NOTE if aside else EntryKind.MOVE, "", text, at))
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

    def found(self) -> Iterator[Found]:
        """What the game came to; nothing where nothing was said."""
        if self._at is None:
            return
        if self._depth:
            self._broken(self._opened, "a variation is not closed")
        ends = [end for end in (self._end, self.tags.get("RESULT", "").strip()) if end in SIGNS]
        stray = not self._words and not self._end
        yield Found(self._at, self._words, SIGNS[ends[0]] if ends else None, self._problem, stray=stray)

    def _broken(self, at: int, reason: str) -> None:
        self._problem = self._problem or (at, reason)


class ChessPlay(Replaying):
    """Player 0 is black."""

    def sign(self, said: int) -> int:
        return -said

    def __call__(self, word: FileEntry) -> None:
        if word.kind is EntryKind.SETUP:
            if word.name != "SETUP" or not any(each.name == "FEN" for each in self.words):  # which says more
                _check(word)
            return
        legal = self.state.legal_actions()
        texts = [_plain(self.state.action_to_string(action)) for action in legal]
        wanted = _plain(word.value)
        action = legal[texts.index(wanted)] if wanted in texts else self._long(wanted, dict(zip(legal, texts, strict=True)))
        if action is None:
            raise IllegalActionError(f"{word.value} is no legal move")
        self.state.apply_action(action)

    def _long(self, wanted: str, legal: dict[int, str]) -> int | None:
        """The one move that a text with its square of departure means: `Ng1f3`, `e2e4`, `e1g1`, `e7e8q`."""
        parts = _LONG.fullmatch(wanted[:-1] + wanted[-1:].upper() if wanted[-2:-1].isdecimal() else wanted)
        if parts is None or not parts[2] + parts[3]:
            return None
        piece, column, row, target, promoted = parts.groups()
        meant = []
        for action, text in legal.items():
            castles = text.startswith("O-O") and column == "e" and target[0] in "cg" and piece in ("", "K")
            if not castles and (target + promoted not in text or (piece and not text.startswith(piece))):
                continue
            if any((column or at[0], row or at[1], target) == (at[0], at[1], to) for at, to in self._ways(action)):
                meant.append(action)
        return meant[0] if len(meant) == 1 else None

    def _ways(self, action: int) -> list[tuple[str, str]]:
        """From where to where a move takes a piece, as positions before and after tell; with castling the king first."""
        after = self.state.clone()
        after.apply_action(action)
        old, new = _board(str(self.state)), _board(str(after))
        left = [square for square, piece in old.items() if piece and not new[square]]
        came = [square for square, piece in new.items() if piece and piece != old[square]]
        mine = str.isupper if self.state.current_player() == WHITE else str.islower
        ways = [(at, to) for at in left if mine(old[at]) for to in came if old[at] == new[to] or old[at] in "Pp"]
        return [way for way in ways if old[way[0]] in "Kk"] or ways


def _check(word: FileEntry) -> None:
    value = " ".join(word.value.lower().split())
    if word.name == "FEN":
        value = " ".join(value.split()[:4])
    if value in USUAL[word.name]:
        return
    if word.name == "VARIANT":
        raise ConfigError(f"it is a game of {word.value}, not of chess (Variant)")
    raise ConfigError(f"it begins from a position of its own ({word.name} {shown(word.value)})")


def _board(fen: str) -> dict[str, str]:
    """What stands on each square; nothing where it is empty."""
    rows = re.sub(r"\d", lambda count: "." * int(count[0]), fen.split()[0]).split("/")
    return {f"{file}{8 - row}": piece.strip(".") for row, pieces in enumerate(rows) for file, piece in zip(FILES, pieces, strict=True)}


def _plain(word: str) -> str:
    """A move without marks of what it does: checks, captures, promotion's sign, dots."""
    bare = re.sub(r"e\.?p\.?$|(?:mate|ch)$|[+#!?=x:()†‡]|^\d+\.+", "", word.strip(BLANK)).replace("0", "O").replace("o", "O")
    return bare if bare.startswith("O") else bare.removeprefix("P").replace("-", "") or bare
