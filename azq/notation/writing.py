"""Recorded games as other programs read them.

JSON lines for any game; SGF (FF[4], red-bean.com/sgf) for gomoku, hex and Othello, PGN (Edwards, 1994) for OpenSpiel's chess, Jellyfish's
.mat for backgammon.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest

import numpy as np

from azq import __version__
from azq.errors import ConfigError
from azq.games import Game, State
from azq.notation import sgf
from azq.notation.boards import Coordinates
from azq.notation.mat import SEATS
from azq.notation.pgn import CHESS
from azq.notation.text import cannot
from azq.notation.units import unit
from azq.wire.messages import GameRecord, SampleEvent

LINE = 80  # characters of a line of PGN
COLUMN = 34  # of a player's moves in .mat
SUFFIXES = {"jsonl": "jsonl", "sgf": "sgf", "pgn": "pgn", "mat": "mat", "txt": "mat"}  # of files


def export(form: str, run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    """The text of a file, piece by piece. Raises `ConfigError` for an unknown form, and for a game that it cannot tell, at once."""
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} is not one of {', '.join(FORMS)}")
    return FORMS[form](run, game, events)


def _jsonl(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    for event in events:
        moves = [text for _, text in _plies(game, event)]
        values = {
            "run": run,
            "uid": event.record.uid,
            "game": game.name,
            "params": dict(game.params),
            "actions": _actions(event),
            "moves": moves,
            "returns": list(event.returns),
            "weight_versions": np.frombuffer(event.record.weight_versions, "<u4").tolist(),
            "worker": event.worker,
            "finished_ms": event.finished_ms,
        }
        yield json.dumps(values) + "\n"


def _sgf(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    cells = sgf.cells(game)
    return (_sgf_game(run, game, cells, event) for event in events)


def _sgf_game(run: str, game: Game, cells: Coordinates, event: SampleEvent) -> str:
    name = _named(run, event)
    head = f"FF[4]CA[UTF-8]AP[azq:{__version__}]GM[{sgf.NUMBERS[game.name]}]SZ[{cells.size}]"
    about = f"PB[{name}]PW[{name}]GN[{run} {event.record.uid}]DT[{_day(event):%Y-%m-%d}]RE[{_winner(event, 'B+', 'W+', '0')}]"
    moves = "".join(f";{'BW'[state.current_player()]}[{_point(game, cells, action)}]" for state, action in _states(game, event))
    return f"(;{head}{about}{moves})\n"


def _point(game: Game, cells: Coordinates, action: int) -> str:
    """Hex has its points, as `e4`; the others those of Go: column and row by letter, from the top left, nothing for a pass."""
    if game.name == "hex":
        return cells.vertex(action).lower()
    return "" if action == cells.pass_action else "".join(chr(ord("a") + place) for place in reversed(divmod(action, cells.size)))


def _pgn(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    if game.name != CHESS:
        raise cannot("pgn", game.name, [CHESS])
    return (_pgn_game(run, game, event) for event in events)


def _pgn_game(run: str, game: Game, event: SampleEvent) -> str:
    result, name = _winner(event, "0-1", "1-0", "1/2-1/2"), _named(run, event)  # OpenSpiel's player 0 is black
    tags = {"Event": run, "Site": "azq", "Date": f"{_day(event):%Y.%m.%d}", "Round": str(event.record.uid), "White": name, "Black": name}
    moves = [text for _, text in _plies(game, event)]
    words = [f"{1 + ply // 2}. {text}" if ply % 2 == 0 else text for ply, text in enumerate(moves)]
    lines: list[str] = []
    line = ""
    for word in [*words, result]:
        if line and len(line) + 1 + len(word) > LINE:
            lines, line = [*lines, line], ""
        line = f"{line} {word}".strip()
    return "".join(f'[{key} "{value}"]\n' for key, value in {**tags, "Result": result}.items()) + "\n" + "\n".join([*lines, line]) + "\n\n"


def _mat(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    if game.name != "backgammon":
        raise cannot("mat", game.name, ["backgammon"])
    return _mat_session(run, game, events)


def _mat_session(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    """A session without a score to reach, `0 point match`; the names are without blanks, as its readers want."""
    yield " 0 point match\n"
    won = [0, 0]
    for number, event in enumerate(events, 1):
        names = [f"{run}-{seat} : {points}" for seat, points in zip(SEATS, won, strict=True)]
        yield f"\n Game {number}\n {names[0]:<{COLUMN + 5}}{names[1]}\n"
        left, right = _turns(game, event)
        for row, (first, second) in enumerate(zip_longest(left, right, fillvalue=""), 1):
            yield f"{row:>3}) {first:<{COLUMN}} {second}".rstrip() + "\n"
        points = round(unit(game).scale * event.returns[0])
        won[points < 0] += abs(points)
        yield f"{'' if points > 0 else ' ' * COLUMN}      Wins {abs(points)} point{'s' * (abs(points) != 1)}\n"


def _turns(game: Game, event: SampleEvent) -> tuple[list[str], list[str]]:
    """Each side's rolls and moves, line by line; the second side's first line is beside the first side's empty one where it began."""
    sides: tuple[list[str], list[str]] = ([], [])
    for state, text in _plies(game, event):
        seat, _, words = text.partition(" ")
        if state.is_chance_node():
            if seat == SEATS[1] and not sides[0]:
                sides[0].append("")
            sides[SEATS.index(seat)].append(f"{words.removeprefix('rolls ')}:")
        elif "/" in words:
            sides[state.current_player()][-1] += f" {words}"
    return sides


FORMS: dict[str, Callable[[str, Game, Iterable[SampleEvent]], Iterator[str]]] = {"jsonl": _jsonl, "sgf": _sgf, "pgn": _pgn, "mat": _mat}


def _actions(event: SampleEvent) -> list[int]:
    return [int(action) for action in np.frombuffer(event.record.actions, "<u2")]


def _states(game: Game, event: SampleEvent) -> Iterator[tuple[State, int]]:
    """Each position and what was done in it; the state goes on as soon as the next one is asked for."""
    state = game.new_initial_state()
    for action in _actions(event):
        yield state, action
        state.apply_action(action)


def _plies(game: Game, event: SampleEvent) -> Iterator[tuple[State, str]]:
    return ((state, state.action_to_string(action)) for state, action in _states(game, event))


def _named(run: str, event: SampleEvent) -> str:
    """Who played: the run, with the newest version that searched in the game."""
    return f"azq {run} {max(np.frombuffer(event.record.weight_versions, '<u4'), default=0)}"


def _day(event: SampleEvent) -> datetime:
    return datetime.fromtimestamp(event.finished_ms / 1000, UTC)


def _winner(event: SampleEvent, first: str, second: str, draw: str) -> str:
    return draw if event.returns[0] == event.returns[1] else first if event.returns[0] > event.returns[1] else second


def as_event(game: Game, uid: int, actions: Sequence[int], source: str, at_ms: int, taught: int | None = None) -> SampleEvent:
    """A finished game as if each of its players' moves were the one that a search of one simulation chose.

    T plies, A actions, V values; those of chance carry no targets, nor do plies after the first `taught`. `actions` lead from the initial
    state to an end.
    """
    state, plies, size = game.new_initial_state(), len(actions), game.value_size()
    movers: list[int] = []
    for action in actions:
        movers.append(-1 if state.is_chance_node() else state.current_player())
        state.apply_action(action)
    searched = (np.asarray(movers) >= 0) & (np.arange(plies) < (plies if taught is None else taught))
    chosen = np.zeros((plies, game.num_distinct_actions()), np.bool_)
    chosen[searched, np.asarray(actions)[searched]] = True
    returns = np.asarray(state.returns(), np.float32)
    seats = (np.maximum(movers, 0)[:, None] + np.arange(size)) % len(returns)  # (T, V) the mover's value, then those of the seats after
    record = GameRecord(
        uid=uid,
        actions=np.asarray(actions, "<u2").tobytes(),
        policies=np.ones(int(searched.sum()), "<f2").tobytes(),
        root_values=np.where(searched[:, None], returns[seats], 0.0).astype("<f4").tobytes(),
        simulations=searched.astype("<u2").tobytes(),
        weight_versions=np.zeros(plies, "<u4").tobytes(),
        support=np.packbits(chosen, axis=1, bitorder="little").tobytes(),
    )
    return SampleEvent(record, tuple(map(float, returns)), source, at_ms)
