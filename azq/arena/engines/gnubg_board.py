"""Backgammon positions as gnubg and azq both know them: GNU position IDs, boards, and the turns that lead from one to another. Pure."""

from __future__ import annotations

import base64

from azq import _core
from azq.errors import ConfigError

ID_BITS = 80
ID_CHARACTERS = 14
SIDE = 25  # points 1 to 24 in the player's own numbering, then the bar
HOME = 6

Side = tuple[int, ...]
Board = tuple[Side, Side]  # the viewer's checkers, the other's


def read_position_id(position_id: str) -> Board:
    """The board of a GNU position ID as the player on roll sees it; raises `ConfigError` for what is no ID."""
    try:
        if len(position_id) != ID_CHARACTERS:
            raise ValueError
        bits = int.from_bytes(base64.b64decode(position_id + "==", validate=True), "little")
        ones = f"{bits:0{ID_BITS}b}"[::-1].split("0")
        other, own = ones[:SIDE], ones[SIDE : 2 * SIDE]
        if len(ones) <= 2 * SIDE or any(ones[2 * SIDE :]):
            raise ValueError
    except ValueError:
        raise ConfigError(f"{position_id!r} is no position ID; write one as gnubg does, such as 4HPwATDgc/ABMA") from None
    return tuple(map(len, own)), tuple(map(len, other))


def write_position_id(board: Board, *, on_roll: bool) -> str:
    """The ID of a viewer's board; `on_roll`: whether it is he who rolls."""
    own, other = board
    first, second = (other, own) if on_roll else (own, other)
    ones = "".join("1" * count + "0" for count in (*first, *second))
    return base64.b64encode(int(ones[::-1], 2).to_bytes(ID_BITS // 8, "little")).decode()[:ID_CHARACTERS]


def board_of(state: _core.State, player: int) -> Board:
    """The board as a player sees it."""
    position_id, _, *fields = state.notation().split(":")
    own, other = read_position_id(position_id)
    return (own, other) if player == int("p1" in fields) else (other, own)


def is_fresh(state: _core.State) -> bool:
    """Whether a turn begins here: dice were rolled, and none of them is played."""
    return state.current_player() >= 0 and not any(field.startswith("u") for field in state.notation().split(":")[2:])


def lines(state: _core.State) -> dict[Board, list[int]]:
    """The boards that the turn at hand can end in, as its player sees them, with a line of micro-moves to each."""
    player = state.current_player()
    found: dict[Board, list[int]] = {}
    met = set()
    stack: list[tuple[_core.State, list[int]]] = [(state, [])]
    while stack:
        here, line = stack.pop()
        for action in here.legal_actions():
            after = here.clone()
            after.apply_action(action)
            if after.current_player() != player:
                found[board_of(after, player)] = [*line, action]
            elif (notation := after.notation()) not in met:
                met.add(notation)
                stack.append((after, [*line, action]))
    return found


def phase(board: Board) -> str:
    """contact where the players can still meet, else race, and bearoff where all checkers are at home."""
    own, other = board
    rear = [max((point for point, count in enumerate(side, 1) if count), default=0) for side in (own, other)]
    if sum(rear) > SIDE:
        return "contact"
    return "bearoff" if max(rear) <= HOME else "race"
