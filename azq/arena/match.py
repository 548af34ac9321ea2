"""A match: pairs of games that share a random opening, colours swapped, all games of the match in step."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from azq import _core
from azq.arena.players import Player
from azq.errors import ConfigError
from azq.wire.messages import MatchResult, MatchSpec

OPENING_TRIES = 1000


@dataclass(slots=True)
class Game:
    """One game of a match; the first player sits at `first_seat`."""

    state: _core.State
    first_seat: int
    history: list[int] = field(default_factory=list)

    def play(self, action: int) -> None:
        """Applies an action."""
        self.state.apply_action(action)
        self.history.append(action)


def play_match(spec: MatchSpec, game: _core.Game, first: Player, second: Player) -> MatchResult:
    """Plays the match to its end. An odd number of games is rounded up to whole pairs.

    Raises `ConfigError` for a game without two players or an opening longer than the game.
    """
    if game.num_players() != 2:
        raise ConfigError(f"a match has two players, {game.name} has {game.num_players()}")
    rng = random.Random(spec.seed)
    games = deal(game, spec.games, spec.opening_plies, rng)
    while live := [one for one in games if not one.state.is_terminal()]:
        for one in live:
            _settle_chance(one, rng)
        for seat_of_first, player in ((0, first), (1, second)):
            _move(player, [one for one in live if _to_move(one) == seat_of_first])
    points = [one.state.returns()[one.first_seat] for one in games]
    wins, losses = sum(point > 0 for point in points), sum(point < 0 for point in points)
    return MatchResult(spec, first.name, second.name, wins, len(points) - wins - losses, losses, int(time.time() * 1000))


def deal(game: _core.Game, count: int, opening_plies: int, rng: random.Random) -> list[Game]:
    """Games in pairs with the same opening; in each pair either player has the first seat once."""
    games = []
    for _ in range((count + 1) // 2):
        opening = random_opening(game, opening_plies, rng)
        for first_seat in (0, 1):
            one = Game(game.new_initial_state(), first_seat)
            for action in opening:
                one.play(action)
            games.append(one)
    return games


def random_opening(game: _core.Game, plies: int, rng: random.Random) -> list[int]:
    """So many random actions that do not end the game; raises `ConfigError` where there is no such line."""
    for _ in range(OPENING_TRIES):
        state = game.new_initial_state()
        actions: list[int] = []
        while len(actions) < plies and not state.is_terminal():
            actions.append(_chance(state, rng) if state.is_chance_node() else rng.choice(state.legal_actions()))
            state.apply_action(actions[-1])
        if not state.is_terminal():
            return actions
    raise ConfigError(f"arena.opening_plies = {plies} ends {game.name}; choose fewer")


def _to_move(one: Game) -> int | None:
    """0 where the first player is to move, 1 where the second is, None where nobody is."""
    if one.state.is_terminal() or one.state.is_chance_node():
        return None
    return 0 if one.state.current_player() == one.first_seat else 1


def _move(player: Player, games: Sequence[Game]) -> None:
    if games:
        for one, action in zip(games, player.choose([one.history for one in games]), strict=True):
            one.play(action)


def _settle_chance(one: Game, rng: random.Random) -> None:
    while one.state.is_chance_node():
        one.play(_chance(one.state, rng))


def _chance(state: _core.State, rng: random.Random) -> int:
    outcomes = state.chance_outcomes()
    return rng.choices([outcome for outcome, _ in outcomes], [probability for _, probability in outcomes])[0]
