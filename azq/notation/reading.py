"""Whole games of files, as actions from the initial state: JSON lines and SGF, as `writing` writes them and others do.

Bytes become text that knows its bytes, text becomes entries of a kind each, and entries meet the rules. Every byte is accounted for: a file
comes in as the games that it holds, or what is none is named with its place and the reason; the other games are none the worse for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from azq.errors import AzqError, ConfigError, IllegalActionError
from azq.games import Game, State
from azq.notation import sgf
from azq.notation.text import BLANK, EntryKind, FileEntry, Found, Replaying, Text, cannot, decode, shown

IGNORED = (EntryKind.NOTE, EntryKind.CLOCK)
PLAYED = (EntryKind.MOVE, EntryKind.SWAP)


@dataclass(frozen=True, slots=True)
class ReadGame:
    """One game of a file, its number there from 1, its actions, and why it is none, where it breaks the rules; or text that is no game."""

    number: int
    actions: tuple[int, ...] = ()
    problem: str = ""
    over: bool = False  # by the rules; others were given up, or their file is cut
    sign: int | None = None  # of player 0's result, as the file says it; None: it does not
    stray: bool = False  # no game, but text that stands outside of any


def form_of(name: str) -> str:
    """The notation that a file's name tells. Raises `ConfigError`."""
    if (form := name.rpartition(".")[2].lower()) not in READERS:
        raise ConfigError(f"{name} does not say what it holds: call it .{', .'.join(READERS)}, or say --format {'|'.join(READERS)}")
    return form


def read_games(form: str, game: Game, data: bytes) -> Iterator[ReadGame]:
    """The games of a file, in its order. Raises `ConfigError` at once for an unknown form, a game of another, wrong bytes."""
    if form not in READERS:
        raise ConfigError(f"--format {form!r} is not one of {', '.join(READERS)}")
    held, find, play = READERS[form]
    if held and game.name not in held:
        raise cannot(form, game.name, sorted(held))
    if form == "sgf":
        sgf.cells(game)
    return _numbered(game, decode(data), find, play)


def _numbered(game: Game, text: Text, find: Finder, play: Player) -> Iterator[ReadGame]:
    number = 0
    for entry in find(game, text.text):
        number += not entry.stray
        yield _played(game, number, entry, text, play)


def _played(game: Game, number: int, source: Found, text: Text, player: Player) -> ReadGame:
    """What the rules make of a game. Once it is over or given up, only a move is too much."""
    if source.problem:
        at, reason = source.problem
        return ReadGame(number, problem=f"byte {text.byte(at)}: {reason}", stray=source.stray)
    state = game.new_initial_state()
    play, place, at, given_up = player(game, state, source.entries), 0, source.at, False
    signs: set[int] = set()
    try:
        for entry in source.entries:
            if entry.kind in IGNORED:
                continue
            place, at = place + (entry.kind is not EntryKind.SETUP), entry.at
            if entry.kind is EntryKind.RESIGNATION:
                signs |= set() if (seat := play.seat(entry)) is None or state.is_terminal() else {2 * seat - 1}
                given_up = True
            elif not (given_up or state.is_terminal()):
                play(entry)
            elif entry.kind in PLAYED:
                raise IllegalActionError(f"goes on with {shown(entry.value)} after the game's end")
        signs |= set() if source.sign is None else {play.sign(source.sign)}
        _check_result(state, signs)
    except AzqError as error:
        return ReadGame(number, problem=f"entry {place} at byte {text.byte(at)}: {error}")
    return ReadGame(number, tuple(state.history()), over=state.is_terminal(), sign=next(iter(signs), None))


def _check_result(state: State, signs: set[int]) -> None:
    """What the rules, a resignation and the file say of the result has to be one."""
    if not state.history():
        raise ConfigError("it has no moves")
    if state.is_terminal():
        signs = signs | {int(np.sign(state.returns()[0]))}
    if len(signs) > 1:
        raise ConfigError("its result is another than that of its moves")


def json_row(line: str) -> tuple[list[int], dict[str, Any]]:
    """The actions of a JSON object, and all of it; raises `ConfigError` for other JSON."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(row := dict(pairs)) < len(pairs):
            raise ValueError("a name stands twice in it")
        return row

    try:
        row = json.loads(line.strip(BLANK), object_pairs_hook=once)
        actions = row["actions"] if "position" not in row else row.get("actions", [])
        if not isinstance(actions, list) or not all(type(action) is int for action in actions):
            raise TypeError("an action is a whole number")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"no JSON object with a list `actions` of whole numbers: {error!r}") from None
    return actions, row


def _json_games(game: Game, text: str) -> Iterator[Found]:
    at = 0
    for line in text.split("\n"):
        if line.strip(BLANK):
            yield _json_game(game, line, at)
        at += len(line) + 1


def _json_game(game: Game, line: str, at: int) -> Found:
    try:
        actions, row = json_row(line)
    except ConfigError as error:
        return Found(at, problem=(at, str(error)))
    of, params = row.get("game", game.name), row.get("params", dict(game.params))
    if (of, params) != (game.name, dict(game.params)):
        reason = f"it is a game of {of} {params or ''}, not of {game.name} {dict(game.params) or ''}"
        return Found(at, problem=(at, reason))
    returns = row.get("returns")
    valid = isinstance(returns, list) and len(returns) == game.num_players() and all(type(value) in (int, float) for value in returns)
    entries = [FileEntry(EntryKind.MOVE, "", str(action), at) for action in actions]
    return Found(at, entries, int(np.sign(returns[0])) if returns and valid else None)


class _NumberPlay(Replaying):
    """Actions by their numbers."""

    def __call__(self, entry: FileEntry) -> None:
        if int(entry.value) not in self.state.legal_actions():
            raise IllegalActionError(f"action {entry.value} is not legal after {len(self.state.history())} plies")
        self.state.apply_action(int(entry.value))


Finder = Callable[[Game, str], Iterator[Found]]
Player = Callable[[Game, State, Sequence[FileEntry]], Replaying]

#: form -> the games that it holds (none: any), what finds them in a text, and who plays their words
READERS: dict[str, tuple[frozenset[str], Finder, Player]] = {
    "jsonl": (frozenset(), _json_games, _NumberPlay),
    "sgf": (frozenset(sgf.NUMBERS), sgf.find_games, sgf.BoardPlay),
}


def sgf_params(game: Game, data: bytes) -> dict[str, int | bool]:
    """What a collection says of its board: the size of the first tree that says one, and that one was swapped."""
    trees = [entry for tree in sgf.find_games(game, decode(data).text) for entry in tree.entries]
    sizes = [entry.value.partition(":")[0] for entry in trees if entry.name == "SZ"]
    size = next((int(size) for size in sizes if size.isdecimal()), 0)
    swapped = game.name == "hex" and any(entry.kind is EntryKind.SWAP for entry in trees)
    return ({"size": size} if size else {}) | ({"swap": True} if swapped else {})
