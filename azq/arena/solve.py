"""Games solved exactly: what every position is worth to its player, by backward induction over all that may follow.

One player or two, nothing hidden; where chance acts, the mean over its outcomes. Values are player 0's but in `Solved`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from azq import _core
from azq.arena.classical import play_out
from azq.arena.player import Tick, no_tick
from azq.errors import ConfigError
from azq.ratings.positions import MARGIN

SPARED = 20  # endgames that may be too large for each that is solved, and before the first


class TooManyStates(ConfigError):
    """More positions follow than were allowed."""


Key = Callable[[_core.State], Hashable]


@dataclass(frozen=True, slots=True)
class Solved:
    """A position with a choice, and what each action there is worth to its player."""

    actions: tuple[int, ...]
    moves: dict[int, float]

    @property
    def matters(self) -> bool:
        """Whether some action is worse than another."""
        return max(self.moves.values()) - min(self.moves.values()) > MARGIN


@dataclass(slots=True)
class Descent:
    """A position on the way down; `values` of its first `edges`, player 0's."""

    state: _core.State
    key: Hashable
    edges: list[tuple[int, float]]  # actions, or outcomes with their probabilities
    values: list[float] = field(default_factory=list)

    def value(self) -> float:
        """What the position is worth to player 0, once all edges are known."""
        player = self.state.current_player()
        if player == _core.CHANCE_PLAYER:
            return sum(value * share for value, (_, share) in zip(self.values, self.edges, strict=True))
        return max(self.values) if player == 0 else min(self.values)

    def solved(self) -> Solved:
        """The same for who is to move."""
        sign = 1.0 if self.state.current_player() == 0 else -1.0
        moves = {action: sign * value + 0.0 for value, (action, _) in zip(self.values, self.edges, strict=True)}
        return Solved(tuple(self.state.history()), moves)


def by_notation(state: _core.State) -> Hashable:
    """The whole position; of a game in Python without a notation, its actions."""
    return state.notation()


def by_looks(state: _core.State) -> Hashable:
    """What all players see, who is to move and what is legal: right where a position is all that its observations show."""
    seen = tuple(state.packed_observation(player).tobytes() for player in range(len(state.returns())))
    ends = tuple(state.returns()) if state.is_terminal() else tuple(state.legal_actions())
    return (*seen, state.current_player(), ends)


def check_solvable(game: _core.Game) -> None:
    """Raises `ConfigError` for a game whose positions have no value that backward induction finds."""
    if game.num_players() > 2:
        raise ConfigError(f"{game.name} has {game.num_players()} players; azq solve solves games of one or two")
    if game.is_hidden():
        raise ConfigError(f"{game.name} hides information, so a position has no value by itself; measure by `azq match` against pimc:100")


class Table:
    """Positions and what they are worth to player 0; `on_solved` gets each position in which a player moves."""

    def __init__(self, key: Key, max_states: int, tick: Tick = no_tick, on_solved: Callable[[Descent], None] = lambda _: None) -> None:
        self.values: dict[Hashable, float] = {}
        self._key, self._max_states, self._tick, self._on_solved = key, max_states, tick, on_solved

    def solve(self, start: _core.State) -> Descent:
        """The position with the values of all its edges; raises `ConfigError` for too many positions and for one that comes again."""
        root = Descent(start.clone(), self._key(start), _edges(start))
        stack, below = [root], {root.key}
        while stack:
            frame = stack[-1]
            child = self._next(frame)
            if child is None:
                self._keep(frame.key, frame.value())
                below.discard(frame.key)
                stack.pop()
                if stack:
                    stack[-1].values.append(self.values[frame.key])
                if frame.state.current_player() >= 0:
                    self._on_solved(frame)
            elif child.key in below:
                raise ConfigError(f"position {child.state} can come again, so play may go on for ever; solve its ends: --endgames PLIES")
            else:
                below.add(child.key)
                stack.append(child)
        return root

    def _next(self, frame: Descent) -> Descent | None:
        """The first child that is not known yet; those that are known, and ends of the game, are entered on the way."""
        while len(frame.values) < len(frame.edges):
            self._tick()
            state = frame.state.clone()
            state.apply_action(frame.edges[len(frame.values)][0])
            key = self._key(state)
            if key not in self.values:
                if not state.is_terminal():
                    return Descent(state, key, _edges(state))
                self._keep(key, state.returns()[0])
            frame.values.append(self.values[key])
        return None

    def _keep(self, key: Hashable, value: float) -> None:
        if len(self.values) >= self._max_states:
            raise TooManyStates(
                f"more than {self._max_states:,} positions; raise --max-states, solve the game's ends (fewer --endgames PLIES), or, where "
                "positions that look the same are the same, add --by-looks"
            )
        self.values[key] = value


class Drawn:
    """So many of the positions in which the choice matters, each equally likely, by a seed."""

    def __init__(self, count: int, seed: int) -> None:
        self.kept: list[Solved] = []
        self.matter = 0
        self._count, self._rng = count, random.Random(seed)

    def __call__(self, frame: Descent) -> None:
        values = frame.values
        if max(values) - min(values) <= MARGIN:
            return
        self.matter += 1
        if len(self.kept) < self._count:
            self.kept.append(frame.solved())
        elif (place := self._rng.randrange(self.matter)) < self._count:
            self.kept[place] = frame.solved()


def endgames(game: _core.Game, plies: int, key: Key, max_states: int, rng: random.Random, tick: Tick = no_tick) -> Iterator[Solved | None]:
    """Positions of random games within so many plies of their end where the choice matters, none twice; None for games without one.

    It has no end. Raises `ConfigError` as `Table`, where too many positions follow once that has become the rule.
    """
    met, found_so_far, too_large = set(), 0, 0
    while True:
        end = game.new_initial_state()
        play_out(end, rng)
        history = end.history()
        state = game.new_initial_state()
        for action in history[: rng.randrange(max(0, len(history) - plies), len(history))]:
            state.apply_action(action)
        solved = None
        if state.current_player() >= 0 and (name := key(state)) not in met:
            met.add(name)
            try:
                solved = Table(key, max_states, tick).solve(state).solved()
            except TooManyStates:
                too_large += 1
                if too_large > SPARED * (1 + found_so_far):
                    raise
        found_so_far += bool(solved and solved.matters)
        yield solved if solved and solved.matters else None


def _edges(state: _core.State) -> list[tuple[int, float]]:
    return state.chance_outcomes() if state.is_chance_node() else [(action, 1.0) for action in state.legal_actions()]
