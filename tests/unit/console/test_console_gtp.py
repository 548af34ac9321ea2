"""A board's commands and azq's answers, by hand and by azq's own client of such players."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import pytest

from azq import games
from azq.arena.engines.gtp import GtpPlayer
from azq.arena.match import play_match
from azq.arena.player import RESIGN, Ground, Player
from azq.arena.players import make_player
from azq.config import SearchConfig, load
from azq.console.gtp import GtpBoard, serve
from azq.console.play import Seating
from azq.errors import ConfigError, EngineError
from azq.notation.boards import coordinates
from azq.wire.messages import MatchSpec


class PlaceMove(Player):
    """The legal action at a place among them all; or as told."""

    name = "place"

    def __init__(self, game: games.Game, told: int | None, place: int) -> None:
        self._game, self._told, self._place = game, told, place

    def choose(self, histories: Sequence[Sequence[int]]) -> list[int]:
        states = []
        for history in histories:
            state = self._game.new_initial_state()
            for action in history:
                state.apply_action(action)
            states.append(state)
        return [self._told if self._told is not None else state.legal_actions()[self._place] for state in states]


def board(name: str, told: int | None = None, place: int = 0) -> GtpBoard:
    game = games.load(name)
    return GtpBoard(game, PlaceMove(game, told, place), coordinates(game))


def talk(to: GtpBoard, *lines: str) -> list[str]:
    return [to.answer(line)[0].rstrip("\n") for line in lines]


def test_answers_carry_the_number_of_their_command_and_end_with_an_empty_line() -> None:
    gomoku = board("gomoku")
    assert gomoku.answer("7 protocol_version") == ("=7 2\n\n", False)
    assert gomoku.answer("8\tknown_command genmove # is it?") == ("=8 true\n\n", False)
    assert gomoku.answer("9 cough") == ("?9 unknown command\n\n", False)
    assert gomoku.answer("# a comment") == ("", False)
    assert gomoku.answer("quit") == ("=\n\n", True)


def test_moves_alternate_and_are_taken_back() -> None:
    gomoku = board("gomoku")
    assert talk(gomoku, "boardsize 15", "play black H8", "genmove w", "genmove w", "play w a15") == [
        "=",
        "=",
        "= A15",
        "? it is black's turn",
        "? it is black's turn",
    ]
    assert talk(gomoku, "reg_genmove b", "play b a15", "undo", "genmove w", "undo", "undo", "undo") == [
        "= B15",
        "? illegal move",
        "=",
        "= A15",
        "=",
        "=",
        "? cannot undo",
    ]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("boardsize 19", "? unacceptable size"),
        ("boardsize", "? syntax error"),
        ("play black", "? syntax error"),
        ("play red a1", "? syntax error"),
        ("play black i1", "? illegal move"),
        ("play black pass", "? illegal move"),
        ("final_score", "? cannot score"),
        ("komi 6.5", "="),
        ("time_left b 10 0", "="),
    ],
)
def test_a_wrong_command_changes_nothing(command: str, answer: str) -> None:
    gomoku = board("gomoku")
    assert talk(gomoku, command, "genmove b") == [answer, "= A15"]


def test_a_player_may_resign_and_the_board_stays() -> None:
    assert talk(board("hex", RESIGN), "genmove b", "genmove black") == ["= resign", "= resign"]


def test_a_side_that_can_only_pass_has_passed_and_after_the_end_all_do() -> None:
    """A board that never says a pass, as it asks the side that can move."""
    game = games.load("othello")
    othello, cells, passes = board("othello", place=-1), coordinates(game), 0
    state = game.new_initial_state()
    while not state.is_terminal():
        action = state.legal_actions()[-1]
        if action == cells.pass_action:
            passes += 1
        else:
            assert talk(othello, f"genmove {'bw'[state.current_player()]}") == [f"= {cells.vertex(action)}"]
        state.apply_action(action)
    assert passes > 0
    black = state.returns()[0]
    assert talk(othello, "genmove b", "play w pass", "final_score") == ["= PASS", "=", "= 0" if black == 0 else f"= {'WB'[black > 0]}+1"]


def test_a_game_without_such_boards_is_refused() -> None:
    with pytest.raises(ConfigError, match="othello, gomoku and hex"):
        serve(load(), Seating("backgammon", None, "latest", 1), "random", io.StringIO(""), io.StringIO())


def test_it_ends_with_its_input_and_tells_the_board_of_a_player_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[int]:
        raise EngineError("player random\nis gone")

    monkeypatch.setattr("azq.arena.players.RandomPlayer.choose", fail)
    said = io.StringIO()
    serve(load(), Seating("hex", None, "latest", 1), "random", io.StringIO("genmove b\nname\n"), said)
    assert said.getvalue() == "? player random is gone\n\n= azq random\n\n"


@pytest.mark.parametrize("name", ["othello", "hex", "gomoku"])
def test_a_match_of_azq_against_itself_through_its_own_client(name: str) -> None:
    """Whole games over a pipe; the client checks each answer against the rules."""
    game = games.load(name)
    engine = GtpPlayer(f"{sys.executable} -m azq gtp --game {name} --player random", game)
    try:
        other = make_player("random", Ground(game, None, SearchConfig(), 1, seed=1))
        result = play_match(MatchSpec(engine.name, "random", 2, 1, 0, 5), game, engine, other)
    finally:
        engine.close()
    assert result.wins + result.draws + result.losses == 2
