"""UCT and perfect-information Monte Carlo for games that are not in the core: forced results, luck, seats, secrets, strength."""

from __future__ import annotations

import re
from math import comb
from pathlib import Path

import pytest

from azq import games
from azq.arena.classical import PythonPimc, PythonUct
from azq.arena.match import play_match
from azq.arena.player import Ground, Player, seen
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.errors import ConfigError
from azq.wire.messages import MatchSpec

FOLDER = Path(__file__).parents[2] / "games"
NIM = games.load(f"{FOLDER / 'nim.py'}:Nim")
COPY = games.load(f"{FOLDER / 'copied.py'}:TicTacToe")
DICE = games.load(f"{FOLDER / 'copied.py'}:Dice")


def after(game: games.Game, *actions: int) -> games.State:
    state = game.new_initial_state()
    for action in actions:
        state.apply_action(action)
    return state


def named(name: str, game: games.Game, seed: int = 1) -> Player:
    return make_player(name, Ground(game, None, SearchConfig(), 1, seed=seed))


def test_uct_takes_the_sticks_that_win() -> None:
    for left in (3, 5, 6, 7, 9, 10, 11):
        heap = games.load(f"{FOLDER / 'nim.py'}:Nim", heap=left)
        assert PythonUct(2000, 1).best_action(heap.new_initial_state()) == left % 4 - 1


def test_uct_wins_at_once_and_parries() -> None:
    assert PythonUct(300, 1).best_action(after(COPY, 0, 3, 1, 4)) == 2
    assert PythonUct(300, 1).best_action(after(COPY, 0, 3, 1)) == 2


@pytest.mark.parametrize(("earlier", "best"), [((5, 3), 1), ((6, 1), 0), ((1, 2), 1)])
def test_uct_weighs_dice_for_the_seat_that_moves(earlier: tuple[int, int], best: int) -> None:
    state = after(DICE, 0, earlier[0], 0, earlier[1])
    assert state.current_player() == 2
    assert PythonUct(3000, 1).best_action(state) == best
    assert PythonPimc(1500, 1).best_action(state) == best


def test_uct_beats_random_moves_by_more_than_luck() -> None:
    result = play_match(MatchSpec("uct:60", "random", 40, 1, 0, 3), NIM, named("uct:60", NIM), named("random", NIM))
    at_least = sum(comb(40, wins) for wins in range(result.wins, 41)) / 2**40  # were each game a coin's toss
    assert at_least < 1e-6


def test_the_same_seed_plays_the_same_games() -> None:
    def once(seed: int) -> list[int]:
        return named("uct:10", COPY, seed).choose([[]] * 20)

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_of_equal_strength_with_the_core() -> None:
    """40 simulations each, openings of one random ply: neither side is ahead by more than luck."""
    core = games.load("tic_tac_toe")

    class CoreSide:
        """The core's UCT, asked about positions of the copy."""

        name = "core"

        def __init__(self) -> None:
            self.player = named("uct:40", core, 2)

        def choose(self, histories: list[list[int]]) -> list[int]:
            return self.player.choose([list(history) for history in histories])

        def close(self) -> None:
            return

    result = play_match(MatchSpec("uct:40", "core", 200, 1, 1, 5), COPY, named("uct:40", COPY), CoreSide())  # type: ignore[arg-type]
    decided = result.wins + result.losses
    assert decided >= 20
    assert abs(result.wins - result.losses) < 3.3 * decided**0.5


def test_pimc_does_not_see_the_other_hand(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "games" / "your-own.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class Showdown" in block)
    (tmp_path / "showdown.py").write_text(code)
    game = games.load(f"{tmp_path / 'showdown.py'}:Showdown")
    for other in (0, 1, 3, 4):  # card 2 of five against a bet: to call is worth 0, to fold -0.5, whatever the other holds
        assert named("pimc:200", game).choose([[other, 2, 1]]) == [1]
    assert {str(seen(game, [4, 2, 1], seed))[7] for seed in range(40)} == set("0134")
    with pytest.raises(ConfigError, match="take pimc:<determinizations>"):
        named("uct:10", game)


def test_games_of_openspiel_have_both() -> None:
    pytest.importorskip("pyspiel")
    board = games.load("openspiel:tic_tac_toe")
    assert named("uct:300", board).choose([[0, 3, 1, 4]]) == [2]
    poker = games.load("openspiel:kuhn_poker")
    assert named("pimc:100", poker).choose([[0, 2, 1], [2, 0, 1]]) == [1, 0]  # the king calls, the jack does not


def test_uct_finds_the_best_way_of_a_game_for_one_whatever_its_scores() -> None:
    walk = games.load(f"{FOLDER / 'coins.py'}:Coins", size=4)

    def best(*way: int) -> float:
        state = after(walk, *way)
        return state.returns()[0] if state.is_terminal() else max(best(*way, action) for action in state.legal_actions())

    state, uct = walk.new_initial_state(), PythonUct(200, 1)
    while not state.is_terminal():
        state.apply_action(uct.best_action(state))
    assert state.returns()[0] == best()
