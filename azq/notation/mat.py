"""Jellyfish's .mat of backgammon as its readers and writers know it: a session into turns, and turns into moves. Pure.

Each game is a heading `Game 1`, the players' line, and numbered rows of both sides' turns; one side's turns come after the other's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from azq.errors import IllegalActionError
from azq.games import Game, State
from azq.notation.text import EntryKind, FileEntry, Found, Replaying, shown
from azq.notation.words import single_moves

SEATS = ("x", "o")  # as azq writes backgammon
MOVES_OF_A_TURN = 4  # backgammon's doubles
PLACES = {"25": "bar", "0": "off"}
SECOND_COLUMN = 20  # characters before the second side begins
INDENT = 10  # more blanks than between a number and its first turn

_HEADING = re.compile(r"^\s*Game\s+\d+[^:\n]*$", re.MULTILINE | re.IGNORECASE)
_ROW = re.compile(r"^\s*(\d+)\)", re.MULTILINE)
_WINS = re.compile(r"^(.*?)\bWins\s+\d", re.MULTILINE | re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<blank>\s+)
    |(?P<roll>[1-6][1-6]:)
    |(?P<step>(?:bar|off|\d+)(?:/(?:bar|off|\d+)\*?)+(?:\(\d\))?\*?(?!\S))
    |(?P<resigned>\?{2,}|Resigns[^\d\n]*|Drops|Rejects|Passes)
    |(?P<note>(?:Re)?Doubles(?:\s*=>\s*\d+)?|Takes|Accepts|Beavers(?:\s*=>\s*\d+)?|Raccoons(?:\s*=>\s*\d+)?|Can(?:no|')t\s+move
        |\(?no\s+(?:play|move)\)?|-+|Wins\s+\d+[^\n]*)
    |(?P<other>\S+)""",
    re.VERBOSE | re.IGNORECASE,
)


def find_games(_: Game, text: str) -> Iterator[Found]:
    """The games of a session; rows outside of any game are none."""
    headings = [*_HEADING.finditer(text)]
    before = text[: headings[0].start()] if headings else text
    if row := _ROW.search(before):
        yield Found(row.start(1), problem=(row.start(1), f"{shown(before[row.start(1) :])} stands before any `Game 1`"), stray=True)
    elif not headings and (bare := before.strip()):
        yield Found(0, problem=(text.index(bare), f"{shown(bare)} is no .mat: it has no `Game 1`"), stray=True)
    for number, heading in enumerate(headings, 1):
        yield _game(text, heading.end(), headings[number].start() if number < len(headings) else len(text))


def _game(text: str, start: int, end: int) -> Found:
    entries: list[FileEntry] = []
    at, rows, won = start, 0, False
    for line in text[start:end].splitlines(keepends=True):
        row = _ROW.match(line)
        if row is None:
            won = won or bool(_WINS.match(line))
            if line.strip() and not won and (rows or ":" not in line):
                return Found(start, entries, problem=(at, f"{shown(line)} is no row of a game"))
        elif int(row[1]) != rows + 1 or won:
            return Found(start, entries, problem=(at, f"row {row[1]} follows {f'row {rows}' if not won else 'the end'}"))
        else:
            rows += 1
            if (problem := _read_row(entries, line, row.end(), at)) is not None:
                return Found(start, entries, problem=problem)
        at += len(line)
    wins = _WINS.search(text[start:end])
    sign = None if wins is None else -1 if len(wins[1]) > SECOND_COLUMN else 1
    return Found(start, entries, sign)


def _read_row(entries: list[FileEntry], line: str, after: int, at: int) -> tuple[int, str] | None:
    """Adds a row's turns; the place and the reason of what is none."""
    for token in _TOKEN.finditer(line, after):
        place, last = at + token.start(), entries[-1] if entries else None
        if token["roll"]:
            turns = [entry for entry in entries if entry.kind is EntryKind.MOVE]
            first = SEATS.index(turns[0].name) if turns else int(token.start() - after > INDENT)
            entries.append(FileEntry(EntryKind.MOVE, SEATS[(first + len(turns)) % 2], token[0], place))
        elif token["step"] and last and last.kind is EntryKind.MOVE:
            if token.end() == len(line) and line[-1].isdecimal():  # the file's last byte: 13/1 may be the beginning of 13/10
                return place, f"{token[0]} may be cut; end the file with a line break"
            entries[-1] = last._replace(value=f"{last.value} {token[0]}")
        elif token["resigned"]:
            if token[0].startswith("?") and last and last.kind is EntryKind.MOVE and last.value.endswith(":"):
                entries.pop()  # thrown, and given up
            entries.append(FileEntry(EntryKind.RESIGNATION, "", token[0], place))
        elif token["note"]:
            entries.append(FileEntry(EntryKind.NOTE, "", token[0], place))
        elif not token["blank"]:
            return place, f"{shown(token[0])} is no turn"
    return None


Wanted = tuple[tuple[str, str], ...]  # from where to where, each one checker


class TurnPlay(Replaying):
    """A turn is a throw and all moves with it; who gave up stands in what the other won."""

    def __call__(self, entry: FileEntry) -> None:
        state, (dice, _, moves) = self.state, entry.value.partition(":")
        thrown = {f"{entry.name} rolls {pair}" for pair in (dice, dice[::-1])}
        outcomes = state.legal_actions() if state.is_chance_node() else []
        outcome = next((outcome for outcome in outcomes if state.action_to_string(outcome) in thrown), None)
        if outcome is None:
            raise IllegalActionError(f"{entry.name} rolls {dice}, which is not what comes next")
        state.apply_action(outcome)
        steps = [step.partition("/") for step in single_moves(moves.lower().replace("*", ""))]
        wanted = tuple((PLACES.get(start, start), PLACES.get(end, end)) for start, _, end in steps)
        actions = _turn(state, wanted) if len(wanted) <= MOVES_OF_A_TURN else None
        if actions is None:
            raise IllegalActionError(f"{entry.name} {entry.value} is no legal turn")
        for action in actions:
            state.apply_action(action)


def _turn(state: State, wanted: Wanted, left: int = MOVES_OF_A_TURN + 1) -> list[int] | None:
    """The actions of one player's turn that move as wanted, one checker over points between where a word says only where it ends."""
    if state.is_terminal() or state.is_chance_node():
        return None if wanted else []
    steps = [(*step, action) for action in state.legal_actions() for step in _steps(wanted, state.action_to_string(action))]
    for _, rest, action in sorted(steps) if left else ():
        after = state.clone()
        after.apply_action(action)
        if (result := _turn(after, rest, left - 1)) is not None:
            return [action, *result]
    return None


def _steps(wanted: Wanted, text: str) -> Iterator[tuple[int, Wanted]]:
    """Which of the wanted moves a legal one may be, by place, and what is to be done after it: the others, and the rest of its way."""
    source, _, target = text.replace("*", "").partition(" ")[2].partition("/")
    if not target:  # passes
        yield 0, wanted
    for place, (start, end) in enumerate(wanted):
        if start == source and target:
            yield place, (*wanted[:place], *(((target, end),) if target != end else ()), *wanted[place + 1 :])
