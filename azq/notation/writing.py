"""Recorded games as other programs read them: JSON lines for any game, SGF (FF[4], red-bean.com/sgf) for gomoku, hex and Othello."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np

from azq import __version__
from azq.errors import ConfigError
from azq.games import Game, State
from azq.notation import sgf
from azq.notation.boards import Coordinates
from azq.wire.messages import GameRecord, SampleEvent


def export(form: str, run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    """The text of a file, piece by piece. Raises `ConfigError` for an unknown form, and for a game that it cannot tell, at once."""
    if form not in FORMS:
        raise ConfigError(f"--format {form!r} is not one of {', '.join(FORMS)}")
    return FORMS[form](run, game, events)


def _jsonl(run: str, game: Game, events: Iterable[SampleEvent]) -> Iterator[str]:
    for event in events:
        values = {
            "run": run,
            "uid": event.record.uid,
            "game": game.name,
            "params": dict(game.params),
            "actions": _actions(event),
            "moves": [state.action_to_string(action) for state, action in _states(game, event)],
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
    day = datetime.fromtimestamp(event.finished_ms / 1000, UTC)
    about = f"PB[{name}]PW[{name}]GN[{run} {event.record.uid}]DT[{day:%Y-%m-%d}]RE[{_winner(event, 'B+', 'W+', '0')}]"
    moves = "".join(f";{'BW'[state.current_player()]}[{_point(game, cells, action)}]" for state, action in _states(game, event))
    return f"(;{head}{about}{moves})\n"


def _point(game: Game, cells: Coordinates, action: int) -> str:
    """Hex has its points, as `e4`; the others those of Go: column and row by letter, from the top left, nothing for a pass."""
    if game.name == "hex":
        return cells.vertex(action).lower()
    return "" if action == cells.pass_action else "".join(chr(ord("a") + place) for place in reversed(divmod(action, cells.size)))


FORMS: dict[str, Callable[[str, Game, Iterable[SampleEvent]], Iterator[str]]] = {"jsonl": _jsonl, "sgf": _sgf}


def _actions(event: SampleEvent) -> list[int]:
    return [int(action) for action in np.frombuffer(event.record.actions, "<u2")]


def _states(game: Game, event: SampleEvent) -> Iterator[tuple[State, int]]:
    """Each position and what was done in it; the state goes on as soon as the next one is asked for."""
    state = game.new_initial_state()
    for action in _actions(event):
        yield state, action
        state.apply_action(action)


def _named(run: str, event: SampleEvent) -> str:
    """Who played: the run, with the newest version that searched in the game."""
    return f"azq {run} {max(np.frombuffer(event.record.weight_versions, '<u4'), default=0)}"


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
