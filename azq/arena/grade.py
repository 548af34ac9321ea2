"""What a player's moves lose on graded positions: strength without an opponent.

A move is a whole turn: the player chooses action by action, and what counts is the position it leads to, however it got there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from azq import _core
from azq.arena.player import RESIGN, Line, Player, position
from azq.errors import AzqError, ConfigError, IllegalActionError
from azq.ratings.positions import Position


@dataclass(frozen=True, slots=True)
class Mark:
    """One graded move."""

    group: str
    loss: float  # best value less that of the move
    loses_class: bool
    listed: bool = True  # False: the file does not grade this move; it counts as the worst one there is


@dataclass(frozen=True, slots=True)
class Grade:
    """Errors (lost result classes), losses and positions, over all and by class."""

    errors: int
    positions: int
    by_class: Mapping[str, tuple[int, int]]
    mean_loss: float = 0.0
    loss_by_class: Mapping[str, float] = field(default_factory=dict)
    unlisted: int = 0

    @property
    def error_share(self) -> float:
        """Share of moves that lost a result class; 0 without positions."""
        return self.errors / self.positions if self.positions else 0.0


def judge(graded: Position, value: float | None) -> Mark:
    """The mark for a move of this value; None: a move that is not listed. Pure."""
    worth = min(graded.moves.values()) if value is None else value
    return Mark(graded.group, graded.best - worth, value is None or graded.loses_class(value), value is not None)


def summarise(marks: Sequence[Mark]) -> Grade:
    """All marks together. Pure."""
    groups: dict[str, list[Mark]] = {}
    for mark_ in marks:
        groups.setdefault(mark_.group, []).append(mark_)
    return Grade(
        errors=sum(mark.loses_class for mark in marks),
        positions=len(marks),
        by_class={name: (sum(member.loses_class for member in members), len(members)) for name, members in groups.items()},
        mean_loss=_mean_loss(marks),
        loss_by_class={name: _mean_loss(members) for name, members in groups.items()},
        unlisted=sum(not mark.listed for mark in marks),
    )


def mark(positions: Sequence[Position], actions: Sequence[int]) -> Grade:
    """Grades moves of one action each, one per position. Pure."""
    return summarise([judge(graded, graded.value(action)) for graded, action in zip(positions, actions, strict=True)])


def grade(game: _core.Game, player: Player, positions: Sequence[Position]) -> Grade:
    """What a player's moves in these positions come to; raises as `marks`."""
    return summarise(marks(game, player, positions))


def marks(game: _core.Game, player: Player, positions: Sequence[Position]) -> list[Mark]:
    """Lets a player move in every position; raises `ConfigError` where a position is not one of this game, and what players raise."""
    turns = [Turn(game, graded) for graded in positions]
    while open_turns := [turn for turn in turns if turn.mark is None]:
        for turn, action in zip(open_turns, player.choose([turn.line for turn in open_turns]), strict=True):
            turn.play(action)
    return [turn.mark for turn in turns if turn.mark is not None]


class Turn:
    """One position while its player moves; `mark` is there once the turn is over."""

    def __init__(self, game: _core.Game, graded: Position) -> None:
        self._graded = graded
        self._game = game
        self.line = line_of(game, graded)
        start = position(game, self.line)
        if start.is_terminal() or start.is_chance_node():
            raise ConfigError(f"{graded.source}: no player is to move there; drop the line")
        self._player = start.current_player()
        self._longest = max(len(actions) for actions in graded.moves)
        self._ends = _ends(graded, start)
        self._state = start
        self._played = 0
        self.mark: Mark | None = None

    def play(self, action: int) -> None:
        """Applies an action of the player's turn; where the turn is over, marks it."""
        if action == RESIGN:
            self.mark = judge(self._graded, None)
            return
        self._state.apply_action(action)
        self.line.append(action)
        self._played += 1
        value = self._ends.get(self._state.notation())
        if value is not None or self._state.current_player() != self._player or self._played >= self._longest:
            self.mark = judge(self._graded, value)


def line_of(game: _core.Game, graded: Position) -> list[int]:
    """The position as players take it."""
    try:
        line = Line(game.state_from_notation(graded.notation)) if graded.notation else list(graded.actions)
        position(game, line)
    except (ConfigError, IllegalActionError) as error:
        raise ConfigError(f"{graded.source}: {error}; the file belongs to another game, or the line is wrong") from None
    return line


def _ends(graded: Position, start: _core.State) -> dict[str, float]:
    """The positions that the graded moves lead to, with the moves' values."""
    ends = {}
    for actions, value in graded.moves.items():
        state = start.clone()
        try:
            for action in actions:
                if state.current_player() != start.current_player():
                    raise ConfigError("the turn is over before its last action")
                state.apply_action(action)
        except AzqError as error:
            raise ConfigError(f"{graded.source}: move '{' '.join(map(str, actions))}': {error}; correct it") from None
        ends[state.notation()] = value
    return ends


def _mean_loss(marks: Sequence[Mark]) -> float:
    return sum(mark.loss for mark in marks) / len(marks) if marks else 0.0
