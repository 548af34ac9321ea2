"""Whole games of files, as actions from the initial state: JSON lines, SGF, PGN and .mat, as `writing` writes them and others do.

A file is first parted into games whose moves are words, then each word is looked for among what the rules allow. Games that do not
follow the rules are told by name; the others are none the worse for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from azq.errors import AzqError, ConfigError, IllegalActionError
from azq.games import Game, State
from azq.notation.boards import coordinates
from azq.notation.writing import CHESS, SEATS, SGF_GAMES, SUFFIXES, cannot

MOVES_OF_A_TURN = 4  # backgammon's doubles
MAT_COLUMN = 20  # characters before the second side begins
MAT_INDENT = 10  # more blanks than between a number and its first turn

_SGF_TOKEN = re.compile(r"[();]|([A-Za-z]+)|\[((?:\\.|[^\]\\])*)\]", re.DOTALL)
_SGF_SIGNS = {"B": 1, "W": -1, "0": 0, "D": 0}  # by the first letter of RE: black began
_PGN_ASIDE = re.compile(r"\{[^}]*\}|;[^\n]*|\$\d+|^%[^\n]*", re.MULTILINE)
_PGN_TAG = re.compile(r'^\s*\[\w+\s+"[^\n]*"\]\s*$', re.MULTILINE)
_PGN_END = re.compile(r"(?<!\S)(1-0|0-1|1/2-1/2|\*)(?!\S)")
_PGN_SIGNS = {"1-0": 1, "0-1": -1, "1/2-1/2": 0}
_MAT_GAME = re.compile(r"^\s*Game\s+\d+\s*$", re.MULTILINE)
_MAT_ROW = re.compile(r"^\s*\d+\)", re.MULTILINE)
_MAT_WINS = re.compile(r"^(.*?)\bWins \d", re.MULTILINE)
_MAT_TURN = re.compile(r"([1-6])([1-6]):((?:[ \t]+[^\s:]*[/*][^\s:]*)*)")


@dataclass(frozen=True, slots=True)
class ReadGame:
    """One game of a file: its number there from 1, its actions, and why it is none, where it breaks the rules."""

    number: int
    actions: tuple[int, ...] = ()
    problem: str = ""
    over: bool = False  # by the rules; others were given up, or their file is cut
    sign: int | None = None  # of the first player's result, as the file says it; None: it does not


class ToldGame(NamedTuple):
    """A game as a file has it: what was done, in words, and the sign of the first player's result."""

    words: Sequence[str]
    sign: int | None = None


def form_of(name: str) -> str:
    """The notation that a file's name tells. Raises `ConfigError`."""
    if (form := SUFFIXES.get(name.rpartition(".")[2].lower())) is None:
        raise ConfigError(f"{name} does not say what it holds: call it .{', .'.join(SUFFIXES)}, or say --format {'|'.join(READERS)}")
    return form


def read_games(form: str, game: Game, text: str) -> Iterator[ReadGame]:
    """The games of a file's text, in its order. Raises `ConfigError` at once for an unknown form, and for a game that it cannot tell."""
    if form not in READERS:
        raise ConfigError(f"--format {form!r} is not one of {', '.join(READERS)}")
    known, parted, play = READERS[form]
    if known and game.name not in known:
        raise cannot(form, game, ", ".join(sorted(known)))
    return (_played(game, number, told, play) for number, told in enumerate(parted(text), 1))


def _played(game: Game, number: int, told: ToldGame, play: Play) -> ReadGame:
    state, place = game.new_initial_state(), 0
    try:
        for place, word in enumerate(told.words, 1):  # noqa: B007 - told where one fails
            if state.is_terminal():
                raise IllegalActionError(f"goes on with {word!r} after the game's end")
            play(game, state, word)
    except AzqError as error:
        return ReadGame(number, problem=f"entry {place}: {error}")
    return ReadGame(number, tuple(state.history()), over=state.is_terminal(), sign=told.sign)


def _json_games(text: str) -> Iterator[ToldGame]:
    """The whole line is the one word of its game, since it says which game it is of."""
    return (ToldGame([line]) for line in text.splitlines() if line.strip())


def _play_json(game: Game, state: State, line: str) -> None:
    try:
        row = json.loads(line)
        actions, named = [int(action) for action in row["actions"]], {"game": game.name, "params": dict(game.params)} | row
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"no JSON object with a list `actions`: {error!r}") from None
    if (named["game"], named["params"]) != (game.name, dict(game.params)):
        raise ConfigError(f"it is a game of {named['game']} {named['params'] or ''}, not of {game.name} {dict(game.params) or ''}")
    for action in actions:
        if action not in state.legal_actions():
            raise IllegalActionError(f"action {action} is not legal after {len(state.history())} plies")
        state.apply_action(action)


def _sgf_games(text: str) -> Iterator[ToldGame]:
    """The first variation of each tree: words such as `B aa`, and what its nodes say of the board, such as `SZ 15`."""
    depth, past, name = 0, False, ""
    words: list[str] = []
    for found in _SGF_TOKEN.finditer(text):
        token, letters, value = found[0], found[1], found[2]
        if token == "(":
            depth, past = depth + 1, past and depth > 0
        elif token == ")":
            depth, past = depth - 1, True  # whatever comes now in this tree is another variation
            if depth == 0:
                results = [word.removeprefix("RE ") for word in words if word.startswith("RE ")]
                yield ToldGame(words, _SGF_SIGNS.get(results[0][:1].upper()) if results else None)
                words, past = [], False
        elif letters:
            name = "".join(each for each in letters if each.isupper())  # older files write Black for B
        elif value is not None and depth and not past:
            words.append(f"{name} {value.strip()}")


def _play_sgf(game: Game, state: State, word: str) -> None:
    name, _, value = word.partition(" ")
    cells = coordinates(game)
    if name == "GM" and value != str(SGF_GAMES[game.name]):
        raise ConfigError(f"it is a game of number {value} of SGF, and {game.name} has {SGF_GAMES[game.name]}")
    if name == "SZ" and value not in (str(cells.size), f"{cells.size}:{cells.size}"):
        raise ConfigError(f"its board has the size {value}, the run's {cells.size}; another is --set 'run.params={{...}}'")
    if name in ("AB", "AW", "AE", "PL"):
        raise ConfigError(f"it begins from a position that is set up ({name})")
    if name not in ("B", "W"):
        return
    if "BW"[state.current_player()] != name and state.legal_actions() == [cells.pass_action]:
        state.apply_action(state.legal_actions()[0])  # many files leave out passes without a choice
    passes = value in ("", "tt") and game.name != "hex"
    action = cells.pass_action if passes else cells.action(value) if game.name == "hex" else _cell(value, cells.size)
    if action is None or "BW"[state.current_player()] != name or action not in state.legal_actions():
        raise IllegalActionError(f"{name}[{value}] is no legal move")
    state.apply_action(action)


def _cell(point: str, size: int) -> int | None:
    """The action of a point such as `cd`: column, then row from the top."""
    if len(point) != 2:
        return None
    column, row = (ord(letter) - ord("a") for letter in point)
    return size * row + column if 0 <= row < size and 0 <= column < size else None


def _pgn_games(text: str) -> Iterator[ToldGame]:
    """Moves in standard algebraic notation, without comments, variations and numbers."""
    bare = _PGN_TAG.sub("", _PGN_ASIDE.sub(" ", text))
    while (less := re.sub(r"\([^()]*\)", " ", bare)) != bare:
        bare = less
    parts = _PGN_END.split(bare)
    for moves, result in zip(parts[::2], parts[1::2], strict=False):
        yield ToldGame(re.sub(r"(?<!\S)\d+\.+", " ", moves).split(), _PGN_SIGNS.get(result))


def _play_pgn(_: Game, state: State, word: str) -> None:
    wanted = _plain_san(word)
    for action in state.legal_actions():
        if _plain_san(state.action_to_string(action)) == wanted:
            state.apply_action(action)
            return
    raise IllegalActionError(f"{word} is no legal move")


def _plain_san(word: str) -> str:
    return re.sub(r"[+#!?=x]|e\.p\.", "", word).replace("0", "O")


def _mat_games(text: str) -> Iterator[ToldGame]:
    """Turns such as `x rolls 31: 8/5 6/5`, one side's after the other's; the second begins where nothing stands on the left."""
    for part in _MAT_GAME.split(text)[1:]:
        words: list[str] = []
        first = 0
        for row in (line for line in part.splitlines() if _MAT_ROW.match(line)):
            for turn in _MAT_TURN.finditer(row):
                first = first if words else int(turn.start() - row.index(")") > MAT_INDENT)
                words.append(f"{SEATS[(first + len(words)) % 2]} rolls {turn[0]}")
        yield ToldGame(words, _mat_sign(part))


def _mat_sign(part: str) -> int | None:
    """Of what a side `Wins`: in the second's column, or the first's."""
    found = _MAT_WINS.search(part)
    return None if found is None else -1 if len(found[1]) > MAT_COLUMN else 1


def _play_mat(__: Game, state: State, turn: str) -> None:
    roll, _, moves = turn.partition(":")
    same = {roll, f"{roll[:-2]}{roll[-1]}{roll[-2]}"}
    outcomes = state.legal_actions() if state.is_chance_node() else []
    outcome = next((each for each in outcomes if state.action_to_string(each) in same), None)
    if outcome is None:
        raise IllegalActionError(f"{roll}, which is not what comes next")
    state.apply_action(outcome)
    actions = _turn(state, _wanted(moves.lower().split()))
    if actions is None:
        raise IllegalActionError(f"{turn} is no legal turn")
    for action in actions:
        state.apply_action(action)


Wanted = tuple[tuple[str, str], ...]  # from where to where, each one checker


def _wanted(words: Sequence[str]) -> Wanted:
    """From where to where: `8/5(2)` is one twice, `13/8/3` goes over 8; 25 is the bar, 0 is off."""
    pairs: list[tuple[str, str]] = []
    for word in words:
        once, times = (found[1], int(found[2])) if (found := re.fullmatch(r"(.*)\(([1-4])\)", word)) else (word, 1)
        places = [{"25": "bar", "0": "off"}.get(place, place) for place in once.replace("*", "").split("/")]
        pairs += times * list(pairwise(places))
    return tuple(pairs)


def _turn(state: State, wanted: Wanted, left: int = MOVES_OF_A_TURN + 1) -> list[int] | None:
    """The actions of one player's turn that move as wanted, one checker over points between where a word says only where it ends."""
    if state.is_terminal() or state.is_chance_node():
        return None if wanted else []
    steps = [(*step, action) for action in state.legal_actions() for step in _steps(wanted, state.action_to_string(action))]
    for _, rest, action in sorted(steps) if left else ():
        after = state.clone()
        after.apply_action(action)
        if (found := _turn(after, rest, left - 1)) is not None:
            return [action, *found]
    return None


def _steps(wanted: Wanted, text: str) -> Iterator[tuple[int, Wanted]]:
    """Which of the wanted moves a legal one may be, by place, and what is to be done after it: the others, and the rest of its way."""
    source, _, target = text.replace("*", "").partition(" ")[2].partition("/")
    if not target:  # passes
        yield 0, wanted
    for place, (start, end) in enumerate(wanted):
        if start == source and target:
            yield place, (*wanted[:place], *(((target, end),) if target != end else ()), *wanted[place + 1 :])


Parted = Callable[[str], Iterator[ToldGame]]
Play = Callable[[Game, State, str], None]

#: form -> the games that it tells (none: any), its games in words, and what a word does
READERS: dict[str, tuple[frozenset[str], Parted, Play]] = {
    "jsonl": (frozenset(), _json_games, _play_json),
    "sgf": (frozenset(SGF_GAMES), _sgf_games, _play_sgf),
    "pgn": (frozenset({CHESS}), _pgn_games, _play_pgn),
    "mat": (frozenset({"backgammon"}), _mat_games, _play_mat),
}
