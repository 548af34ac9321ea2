"""Random playouts per second of every game, one thread, beside OpenSpiel's C++ where it has the game; and hidden hands redrawn per second.

Usage: playouts.py [NAME ...] [--seconds S] [--rounds R] [--json]     names as `azq games list` has them; default all
Both sides play whole games inside C++, many to a call, so that the binding costs nothing: ours by `random_playouts`; OpenSpiel's
by its MCTS bot, which given two simulations plays N playouts from the position itself and N from one ply further on, by its own
random rollout evaluator. There games begin after the deal or roll that opens them; ours deal. CPU-seconds; the best of R rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from azq import games
from azq._core import random_playouts, random_redraws

try:
    import pyspiel
except ImportError:  # then our own side is all there is to measure
    pyspiel = None

ALLOWED = 3.0  # times as fast as ours that the other may be


class Case(NamedTuple):
    """One game at one size, and what OpenSpiel calls it (None: it has no such game)."""

    name: str
    params: dict[str, Any]
    other: str | None


KNOWN = [
    Case("backgammon", {}, "backgammon(scoring_type=full_scoring)"),
    Case("beasty_bar", {"players": 2}, None),
    Case("beasty_bar", {"players": 4}, None),
    Case("blob", {"players": 4, "cards": 5}, "oh_hell(players=4,num_tricks_fixed=5)"),
    Case("blob", {"players": 6, "cards": 8}, "oh_hell(players=6,num_tricks_fixed=8)"),
    Case("connect_four", {}, "connect_four"),
    Case("gomoku", {"size": 9}, "gomoku(size=9)"),
    Case("gomoku", {"size": 15}, "gomoku(size=15)"),
    Case("hex", {"size": 7}, "hex(board_size=7)"),
    Case("hex", {"size": 11}, "hex(board_size=11)"),
    Case("othello", {"size": 6}, None),
    Case("othello", {"size": 8}, "othello"),
    Case("tic_tac_toe", {}, "tic_tac_toe"),
]


class Row(NamedTuple):
    """What was measured of a case; `ratio` is ours over theirs."""

    game: str
    games_per_s: float
    plies_per_s: float
    openspiel_games_per_s: float | None
    ratio: float | None
    redraws_per_s: float | None


def cases(names: list[str]) -> list[Case]:
    """The known cases of these games, and each other game as its defaults have it."""
    known = [case for case in KNOWN if case.name in names]
    return known + [Case(name, {}, None) for name in names if name not in {case.name for case in known}]


def rate(play: Callable[[int, int], int], seconds: float, rounds: int) -> tuple[float, float]:
    """The best round of play(count, seed), which plays `count` games and returns their plies: (games, plies) per CPU-second."""
    count, seed, best = 8, 0, (0.0, 0.0)
    for _ in range(rounds):
        games_played = plies = 0
        begun = time.process_time()
        while (spent := time.process_time() - begun) < seconds:
            seed += 1
            called = time.process_time()
            plies += play(count, seed)
            games_played += count
            if time.process_time() - called < seconds / 20:
                count *= 2
        best = max(best, (games_played / spent, plies / spent))
    return best


def ours(case: Case, seconds: float, rounds: int) -> tuple[float, float]:
    """(games, plies) per CPU-second in azq's core."""
    game = games.load(case.name, **case.params)
    return rate(lambda count, seed: random_playouts(game, count, seed)[1], seconds, rounds)


def redraws(case: Case, seconds: float, rounds: int) -> float | None:
    """Hidden hands redrawn per CPU-second, over the decisions of random games; None where nothing is hidden."""
    game = games.load(case.name, **case.params)
    if not game.is_hidden():
        return None
    return rate(lambda count, seed: random_redraws(game, count, seed), seconds, rounds)[1]


def theirs(name: str, seconds: float, rounds: int) -> float:
    """Games per CPU-second in OpenSpiel's C++."""
    game = pyspiel.load_game(name)
    start = game.new_initial_state()
    rng = random.Random(1)
    while start.is_chance_node():  # its bot wants a player at the root
        outcomes, weights = zip(*start.chance_outcomes(), strict=True)
        start.apply_action(rng.choices(outcomes, weights)[0])

    def play(count: int, seed: int) -> int:
        evaluator = pyspiel.RandomRolloutEvaluator(count // 2, seed)
        pyspiel.MCTSBot(game, evaluator, 1.0, 2, 1000, False, seed, False).step(start)
        return 0

    return rate(play, seconds, rounds)[0]


def measure(case: Case, seconds: float, rounds: int) -> Row:
    """Both sides of a case."""
    games_per_s, plies_per_s = ours(case, seconds, rounds)
    other = theirs(case.other, seconds, rounds) if case.other and pyspiel else None
    sizes = ",".join(f"{key}={value}" for key, value in case.params.items())
    name = f"{case.name}({sizes})" if sizes else case.name
    return Row(name, games_per_s, plies_per_s, other, games_per_s / other if other else None, redraws(case, seconds, rounds))


def show(rows: list[Row]) -> None:
    """Prints a table."""
    print(f"{'game':<32}{'games/s':>13}{'plies/s':>15}{'OpenSpiel':>13}{'ratio':>9}{'redraws/s':>13}")
    for row in rows:
        other = f"{row.openspiel_games_per_s:,.0f}" if row.openspiel_games_per_s else "-"
        ratio = f"{row.ratio:.1f}" if row.ratio else "-"
        redrawn = f"{row.redraws_per_s:,.0f}" if row.redraws_per_s else "-"
        slow = "  too slow" if row.ratio and row.ratio < 1 / ALLOWED else ""
        print(f"{row.game:<32}{row.games_per_s:>13,.0f}{row.plies_per_s:>15,.0f}{other:>13}{ratio:>9}{redrawn:>13}{slow}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU-seconds of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(games.names())):
        parser.error(f"no game is called {unknown[0]}; known games: {', '.join(games.names())}")
    rows = [measure(case, given.seconds, given.rounds) for case in cases(given.names or list(games.names()))]
    if given.json:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        show(rows)


if __name__ == "__main__":
    main()
