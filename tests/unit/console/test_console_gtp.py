"""A board's commands and azq's answers, by hand and by azq's own client of such players."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq import __version__, games
from azq.arena.engines.gtp import GtpPlayer
from azq.arena.match import play_match
from azq.arena.player import RESIGN, Ground, Player
from azq.arena.players import NetworkPlayer, make_player
from azq.config import SearchConfig, load
from azq.console.gtp import GtpBoard, answer_lines, serve
from azq.console.play import Seating
from azq.errors import ConfigError, EngineError
from azq.notation.boards import coordinates
from azq.process.start import AZQ
from azq.search.evaluator import UniformEvaluator
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


def board(name: str, told: int | None = None, place: int = 0, **params: int) -> GtpBoard:
    game = games.load(name, **params)
    return GtpBoard(game, PlaceMove(game, told, place), coordinates(game))


def talk(to: GtpBoard, *lines: str) -> list[str]:
    return [str(to.answer(line)[0]).rstrip() for line in lines]


def test_answers_carry_the_number_of_their_command_and_end_with_an_empty_line() -> None:
    gomoku = board("gomoku")
    assert gomoku.answer("7 protocol_version") == ("=7 2\n\n", False)
    assert gomoku.answer("8\tknown_command genmove # is it?") == ("=8 true\n\n", False)
    assert gomoku.answer("9 cough") == ("?9 unknown command\n\n", False)
    assert gomoku.answer("# a comment") == ("", False)
    assert gomoku.answer("quit") == ("= \n\n", True), "HexGui takes no answer without the blank"


def test_moves_alternate_and_are_taken_back() -> None:
    gomoku = board("gomoku")
    there = ["boardsize 15", "play black H8", "genmove w", "genmove w", "play w a15"]
    assert talk(gomoku, *there) == ["=", "=", "= A15", "? it is black's turn", "? it is black's turn"]
    back = ["reg_genmove b", "play b a15", "undo", "genmove w", "undo", "undo", "undo"]
    assert talk(gomoku, *back) == ["= B15", "? illegal move", "=", "= A15", "=", "=", "? cannot undo"]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("boardsize 19", "? unacceptable size"),
        ("boardsize 15 15", "="),
        ("rectangular_boardsize 15 15", "="),
        ("boardsize 15 9", "? unacceptable size"),
        ("boardsize 15 15 15", "? syntax error"),
        ("set_game Gomoku", "="),
        ("set_game Go", "? this is gomoku"),
        ("loadsgf", "? cannot load file: [Errno 21] Is a directory: '.'"),
        ("loadsgf no such file.sgf", "? cannot load file: [Errno 2] No such file or directory: 'no such file.sgf'"),
        ("kata-analyze b 10", "? unknown command"),
        ("stop", "="),
        ("play black \ufffd\u0663", "? illegal move"),
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


def session(script: str) -> list[tuple[str, str]]:
    """Commands, and after `->` the answers to them; without one, that it is taken."""
    pairs = [line.partition(" -> ") for line in script.strip().splitlines()]
    return [(command.strip(), answer.strip() or "=") for command, _, answer in pairs]


OPENING = "name -> = azq place\nversion -> = VERSION\nprotocol_version -> = 2\n"
SABAKI = f"""
{OPENING}komi 0
boardsize 8
clear_board
play B D3
genmove W -> = C3
protocol_version -> = 2
undo
play W E3
clear_board
play B C4
genmove W -> = C3
genmove B -> = C2
undo
undo
undo
undo -> ? cannot undo
rectangular_boardsize 8 9 -> ? unacceptable size
quit
"""
HEXGUI = """
name -> = azq place
version -> = VERSION
hexgui-analyze_commands
boardsize 5 5
showboard -> = BOARD
play black c3
genmove white -> = A1
play white swap-pieces -> ? it is black's turn
play black resign -> ? illegal move
undo
play white b2
boardsize 5 5
genmove black -> = A1
quit
"""


@pytest.mark.parametrize(("name", "script"), [("othello", SABAKI), ("hex", HEXGUI)], ids=["sabaki", "hexgui"])
def test_whole_sessions_as_boards_send_them(name: str, script: str) -> None:
    to = board(name, size=5) if name == "hex" else board(name)
    for command, answer in session(script):
        expected = answer.replace("VERSION", __version__)
        (said,) = talk(to, command)
        if "BOARD" in expected:
            expected, said = expected.replace(" BOARD", ""), said.split("\n")[0].rstrip()
        assert said == expected, command


def test_a_pass_that_the_board_left_out_goes_with_the_move_that_it_belongs_to() -> None:
    before = [f"play {'BW'[ply % 2]} {vertex}" for ply, vertex in enumerate(["D3", "C3", "E6", "D2", "D1", "E1", "B2"])]
    othello, other = board("othello"), board("othello")
    taken_back = ["play W C1", "play W A3", "undo", "undo"]  # between the two black can only pass
    assert {*talk(othello, *before, *taken_back, "play W B4"), *talk(other, *before, "play W B4")} == {"="}
    (shown,) = talk(othello, "showboard")
    assert [shown] == talk(other, "showboard")
    assert shown.splitlines()[1] == "...xo..."


def test_passes_after_the_end_are_taken_back_alone() -> None:
    to = board("hex", size=5)
    plies = [f"play {colour} {column}{row}" for row in range(1, 6) for colour, column in (("b", "a"), ("w", "b"))][:-1]
    assert set(talk(to, *plies)) == {"="}
    assert talk(to, "genmove w", "play b pass", "final_score") == ["= PASS", "=", "= B+1"]
    assert talk(to, "undo", "undo", "final_score", "undo", "final_score") == ["=", "=", "= B+1", "=", "? cannot score"]


def test_a_game_of_a_file_is_loaded_and_a_file_of_another_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "my game.sgf"
    file.write_bytes(b"\xef\xbb\xbf(;GM[4]SZ[15];B[hh];W[aa];B[ab])")
    gomoku = board("gomoku")
    lines = [f"loadsgf {file}", "genmove w", "undo", "undo", f"loadsgf {file} 2", "genmove w"]
    assert talk(gomoku, *lines) == ["=", "= B15", "=", "=", "=", "= A15"]
    file.write_bytes(b"(;GM[4]SZ[15];B[hh];W[hh])")
    (said,) = talk(gomoku, f"loadsgf {file}")
    assert said.startswith("? cannot load file: entry 2 at byte")
    assert talk(gomoku, "undo", "undo", "undo") == ["=", "=", "? cannot undo"], "the game of before is still there"


def test_an_analysis_is_told_until_the_next_line_comes() -> None:
    """Sabaki sends any other command, GoGui and KataGo's own boards an empty line."""
    asked, sink = threading.Event(), io.StringIO()

    class Board(io.StringIO):
        def __iter__(self) -> Iterator[str]:  # type: ignore[override]
            yield from ("7 lz-analyze B 1\n", "\n", "kata-analyze 1 maxmoves 1 ownership true\n")
            assert asked.wait(PATIENCE_S)
            yield from ("name\n", "kata-analyze w 1\n", "kata-analyze interval x\n", "list_commands\n")

    class Sink(io.StringIO):
        def write(self, text: str) -> int:
            if (text := sink.getvalue() + text).count("\ninfo move") > 3:
                asked.set()
            sink.seek(0)
            return sink.write(text)

    game = games.load("gomoku", size=9)
    player = NetworkPlayer((3,), Ground(game, UniformEvaluator(81), SearchConfig(), 16, slots=1))
    answer_lines(GtpBoard(game, player, coordinates(game)), Board(), Sink())
    first, second, name, turn, wrong, commands, _ = sink.getvalue().split("\n\n")
    number, line = first.split("\n")
    assert number == "=7"
    assert re.fullmatch(r"(info move [A-P]\d+ visits \d+ winrate \d+ prior \d+ lcb \d+ order \d+ pv( [A-P]\d+)+ ?)+", line)
    assert sum(map(int, re.findall(r"visits (\d+)", line))) == 16
    head, *lines = second.split("\n")
    assert (head, len(set(lines))) == ("=", 1)
    assert len(lines) > 1, "again after each interval"
    assert re.fullmatch(r"info move [A-P]\d+ visits \d+ winrate 0\.\d{6} prior 0\.\d{6} lcb 0\.\d{6} order 0 pv( [A-P]\d+)+", lines[0])
    assert (name, turn, wrong) == ("= azq weights:3", "? it is black's turn", "? syntax error")
    assert {"lz-analyze", "kata-analyze", "loadsgf", "undo"} <= set(commands[2:].split("\n"))


def test_any_byte_is_read_in_any_locale() -> None:
    done = subprocess.run(
        [*AZQ, "gtp", "--game", "gomoku", "--player", "random"],
        input=b"name\r\nplay B M\xff\nquit\n",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii:strict"},
    )
    assert (done.returncode, done.stdout) == (0, b"= azq random\n\n? illegal move\n\n= \n\n"), done.stderr


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
