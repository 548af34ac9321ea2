"""A match: groups of games that share a random opening and all their luck, the first player once in each seat; all games in step.

With two players a group is a pair with swapped colours; with n the first player takes one seat and the second all others. A game for
one player is played by each of the two alone, and that pair counts as one game, won by the higher score.
Duplicate deals: the k-th event of chance draws the same number in every game of a group, so that cards and dice differ only
where play makes them differ. Results are in the game's unit: points of backgammon, points a round of Blob, a score.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from azq import _core
from azq.arena.player import RESIGN, SEED_BITS, Played, Player, position
from azq.arena.players import NetworkPlayer
from azq.clock import now_ms
from azq.errors import ConfigError
from azq.notation.units import unit
from azq.process.proc import whole_cpu_s
from azq.wire.messages import MatchResult, MatchSpec

OPENING_TRIES = 1000
APART = 1  # the first player's seat in the second's own game for one player: an empty one


@dataclass(slots=True)
class MatchGame:
    """One game of a match; the first player sits at `first_seat`."""

    state: _core.State
    first_seat: int
    luck: random.Random  # in the same state in every game of a group
    history: list[int] = field(default_factory=list)  # as dealt, a `Played`
    resigned: int | None = None  # the seat that gave up

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.resigned is not None or self.state.is_terminal()

    def play(self, action: int) -> None:
        """Applies an action, or gives the game up for the player to move."""
        if action == RESIGN:
            self.resigned = self.state.current_player()
            return
        self.state.apply_action(action)
        self.history.append(action)

    def returns(self) -> list[float]:
        """The result of every seat; who resigned has lost."""
        if self.resigned is None:
            return self.state.returns()
        return [-1.0 if seat == self.resigned else 1.0 for seat in range(len(self.state.returns()))]


class MeteredPlayer(Player):
    """A player, and what its moves took; CPU is counted of this process and all that it started."""

    def __init__(
        self, player: Player, clock: Callable[[], float] = time.perf_counter, cpu_clock: Callable[[], float] = whole_cpu_s
    ) -> None:
        self.name = player.name
        self._player = player
        self._clocks: Sequence[Callable[[], float]] = (
            clock,
            cpu_clock,
            lambda: player.simulations if isinstance(player, NetworkPlayer) else 0,
        )
        self._moves, self._spent = 0, [0.0, 0.0, 0.0]

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        begun = [clock() for clock in self._clocks]
        actions = self._player.choose(histories)
        self._moves += len(actions)
        ended = [clock() for clock in self._clocks]
        self._spent = [spent + end - start for spent, end, start in zip(self._spent, ended, begun, strict=True)]
        return actions

    def a_move(self) -> dict[str, float]:
        """Milliseconds, CPU-seconds and simulations a move."""
        seconds, cpu_s, simulations = (spent / max(1, self._moves) for spent in self._spent)
        return {"ms": round(1000 * seconds, 1), "cpu_s": round(cpu_s, 4), "simulations": round(simulations, 1)}


def play_match(spec: MatchSpec, game: _core.Game, first: Player, second: Player) -> MatchResult:
    """Plays the match, or its part, to its end. The number of games is rounded up to whole groups, of as many games as there are seats.

    Raises `ConfigError` for an opening longer than the game, and what players raise.
    """
    games = deal(game, spec)
    while live := [match_game for match_game in games if not match_game.over]:
        for match_game in live:
            _settle_chance(match_game)
        for is_first, player in ((True, first), (False, second)):
            _move(player, [match_game for match_game in live if _to_move(match_game) is is_first])
    return result_of(spec, game, first.name, second.name, games)


def result_of(spec: MatchSpec, game: _core.Game, first: str, second: str, games: Sequence[MatchGame]) -> MatchResult:
    """The result of games that are over, from the first player's seat."""
    if game.num_players() == 1:
        return _scores_of(spec, game, first, second, games)
    in_unit = unit(game).convert
    returns = [game.returns() for game in games]
    shares = [share_of_first_place(values, match_game.first_seat) for values, match_game in zip(returns, games, strict=True)]
    wins, losses = sum(share == 1.0 for share in shares), sum(share == 0.0 for share in shares)
    firsts = [in_unit(values[match_game.first_seat]) for values, match_game in zip(returns, games, strict=True)]
    points, error = mean_and_error(firsts, game.num_players())
    return MatchResult(
        *(spec, first, second, wins, len(games) - wins - losses, losses, now_ms()),
        seats=game.num_players(),
        share=sum(shares) / len(shares),
        points=points,
        points_se=error,
    )


def _scores_of(spec: MatchSpec, game: _core.Game, first: str, second: str, games: Sequence[MatchGame]) -> MatchResult:
    """The result where each played alone: scores, and how often whose was higher with the same luck."""
    in_unit = unit(game).convert
    ours, theirs = ([in_unit(game.returns()[0]) for game in games[start::2]] for start in (0, 1))
    gaps = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    (points, points_se), (second_points, second_se), (_, gap_se) = (mean_and_error(values, 1) for values in (ours, theirs, gaps))
    draws = len(gaps) - wins - losses
    return MatchResult(
        *(spec, first, second, wins, draws, losses, now_ms()),
        seats=1,
        share=(wins + draws / 2) / len(gaps),
        points=points,
        points_se=points_se,
        second_points=second_points,
        second_points_se=second_se,
        gap_se=gap_se,
    )


def failed(spec: MatchSpec, reason: str) -> MatchResult:
    """The result of a match that an engine ended: no games, and why."""
    return MatchResult(spec, spec.first, spec.second, 0, 0, 0, now_ms(), error=reason)


def mean_and_error(points: Sequence[float], group: int) -> tuple[float, float]:
    """Mean of the points and its standard error, from the means of consecutive groups of games that share their luck.

    The error is 0 where there are fewer than two groups: nothing is known of it then.
    """
    means = [sum(points[start : start + group]) / group for start in range(0, len(points), group)]
    count = len(means)
    mean = sum(means) / count
    if count < 2:
        return mean, 0.0
    return mean, math.sqrt(sum((value - mean) ** 2 for value in means) / (count - 1) / count)


def share_of_first_place(returns: Sequence[float], seat: int) -> float:
    """1 for the sole winner, 1/k for each of k who share the best result, 0 for all others. Pure."""
    best = max(returns)
    return 1.0 / sum(value == best for value in returns) if returns[seat] == best else 0.0


def whole_groups(count: int, seats: int) -> int:
    """So many games, rounded up to whole groups."""
    return -(-count // seats) * seats


def deal(game: _core.Game, spec: MatchSpec) -> list[MatchGame]:
    """Games in groups with the same opening and the same luck; in each group the first player has each seat once, or his game and the
    second player his, in a game for one player.

    A part's games are those that they are in the whole match. Whole groups go to the part that holds their first game.
    """
    seats, rng = game.num_players(), random.Random(spec.seed)
    begin, end = (whole_groups(place, seats) for place in (spec.first_game, spec.first_game + spec.games))
    games = []
    for number in range(0, end, seats):
        opening = random_opening(game, spec.opening_plies, rng)
        luck = rng.getrandbits(SEED_BITS)
        for first_seat in range(group_size(seats) if number >= begin else 0):
            match_game = MatchGame(game.new_initial_state(), first_seat, random.Random(luck), Played(number + first_seat % seats))
            for action in opening:
                match_game.play(action)
            games.append(match_game)
    return games


def group_size(seats: int) -> int:
    """Games that share their luck."""
    return max(seats, APART + 1)


def random_opening(game: _core.Game, plies: int, rng: random.Random) -> list[int]:
    """So many random actions of players, with what chance does between, that do not end the game; nothing for no plies.

    Raises `ConfigError` where there is no such line.
    """
    for _ in range(OPENING_TRIES):
        state = game.new_initial_state()
        actions: list[int] = []
        left = plies
        while left and not state.is_terminal():
            by_chance = state.is_chance_node()
            actions.append(draw_outcome(state, rng) if by_chance else rng.choice(state.legal_actions()))
            state.apply_action(actions[-1])
            left -= not by_chance
        if not state.is_terminal():
            return actions
    raise ConfigError(f"arena.opening_plies = {plies} ends {game.name}; choose fewer")


def _to_move(match_game: MatchGame) -> bool | None:
    """Whether the first player is to move; None where neither player is."""
    if match_game.over or match_game.state.is_chance_node():
        return None
    return match_game.state.current_player() == match_game.first_seat


def _move(player: Player, games: Sequence[MatchGame]) -> None:
    if games:
        for match_game, action in zip(games, player.choose([match_game.history for match_game in games]), strict=True):
            match_game.play(action)


def _settle_chance(match_game: MatchGame) -> None:
    while match_game.state.is_chance_node():
        match_game.play(draw_outcome(match_game.state, match_game.luck))


def play_on(game: _core.Game, player: Player, histories: Sequence[Sequence[int]], seed: int = 0) -> list[list[int]]:
    """Each history with what one player, for all seats, and chance make of it up to its end; raises what `player.choose` raises."""
    rng, states = random.Random(seed), [position(game, history) for history in histories]
    whole = [list(history) for history in histories]
    while open_ones := [number for number, state in enumerate(states) if not state.is_terminal()]:
        to_move = [number for number in open_ones if not states[number].is_chance_node()]
        chosen = dict(zip(to_move, player.choose([whole[number] for number in to_move]) if to_move else (), strict=True))
        for number in open_ones:
            action = chosen[number] if number in chosen else draw_outcome(states[number], rng)
            states[number].apply_action(action)
            whole[number].append(action)
    return whole


def draw_outcome(state: _core.State, rng: random.Random) -> int:
    """An outcome, from one number of the stream however many outcomes there are."""
    outcomes = state.chance_outcomes()
    return rng.choices([outcome for outcome, _ in outcomes], [probability for _, probability in outcomes])[0]
