"""The position a player is asked about, and what of it the player may see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from azq import _core
from azq.errors import EngineError


class Line(list[int]):
    """Actions from a position that is not the initial one; it goes wherever a history goes."""

    def __init__(self, start: _core.State, actions: Iterable[int] = ()) -> None:
        super().__init__(actions)
        self.start = start


def position(game: _core.Game, history: Sequence[int]) -> _core.State:
    """The state after these actions; raises `IllegalActionError` for actions that do not replay."""
    state = history.start.clone() if isinstance(history, Line) else game.new_initial_state()
    for action in history:
        state.apply_action(action)
    return state


def seen(game: _core.Game, history: Sequence[int], seed: int) -> _core.State:
    """The position as its player to move may see it: all that is hidden from him is drawn anew, and no history is attached.

    Players that hold a whole state get it from here and nowhere else, so that none of them can peek.
    """
    state = position(game, history)
    if not game.is_hidden():
        return state
    drawn = state.resample_from_infostate(state.current_player(), seed)
    return game.state_from_notation(drawn.notation())  # a history would hold the deal as it really was


def from_the_start(player: str, history: Sequence[int]) -> list[int]:
    """The actions from the initial state; raises `EngineError` where the position is known by its notation only."""
    if isinstance(history, Line):
        raise EngineError(f"player {player} takes actions from the initial position only, not a notation; give positions as actions")
    return [int(action) for action in history]
