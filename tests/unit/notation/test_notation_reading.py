"""Games of files: what `writing` wrote comes back; what others write, with asides and variations, is read as they mean it."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_games import play_game

from azq import games
from azq.errors import ConfigError
from azq.games import Game
from azq.notation.reading import READERS, ReadGame, form_of, read_games
from azq.notation.writing import export


def read(form: str, game: Game, text: str) -> list[ReadGame]:
    return list(read_games(form, game, text.encode()))


def texts(game: Game, actions: tuple[int, ...]) -> list[str]:
    state, found = game.new_initial_state(), []
    for action in actions:
        found.append(state.action_to_string(action))
        state.apply_action(action)
    return found


@pytest.mark.parametrize(
    ("name", "form"), [("gomoku", "sgf"), ("othello", "sgf"), ("hex", "sgf"), ("openspiel:chess", "pgn"), ("beasty_bar", "jsonl")]
)
def test_written_games_come_back_move_by_move(name: str, form: str) -> None:
    if name.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    game = games.load(name)
    events = [play_game(game, uid) for uid in range(1, 4)]
    found = read(form, game, "".join(export(form, "r", game, events)))
    assert [(each.number, each.over, each.problem) for each in found] == [(1, True, ""), (2, True, ""), (3, True, "")]
    assert [list(each.actions) for each in found] == [np.frombuffer(event.record.actions, "<u2").tolist() for event in events]
    if form != "jsonl":
        assert [each.sign for each in found] == [np.sign(event.returns[0]) for event in events]


def test_written_turns_of_backgammon_come_back_in_any_order_of_their_dice() -> None:
    game = games.load("backgammon")
    events = [play_game(game, uid) for uid in range(1, 5)]
    found = read("mat", game, "".join(export("mat", "r", game, events)))
    for each, event in zip(found, events, strict=True):
        played = np.frombuffer(event.record.actions, "<u2").tolist()
        rolls = [place for place, text in enumerate(texts(game, each.actions)) if "rolls" in text]
        assert rolls == [place for place, text in enumerate(texts(game, tuple(played))) if "rolls" in text]
        ends = [game.new_initial_state(), game.new_initial_state()]
        for state, actions in zip(ends, (each.actions, played), strict=True):
            for action in actions:
                state.apply_action(action)
        assert each.over
        assert each.sign == np.sign(ends[1].returns()[0])
        assert ends[0].notation() == ends[1].notation()


SESSION = """; [Site "elsewhere"]
 5 point match

 Game 1
 one : 0                        other : 0
  1)                             65: 24/18 18/13
  2) 42: 8/4 6/4                 51: 24/18
  3)  Doubles => 2               Takes
  4) 44: 13/9(2) 9/5(2)
                                  Wins 2 points

 Game 2
 one : 0                        other : 2
  1) 31: 8/5 6/5                 66: 24/18(2) 13/7(2)
  2) 64: 24/14
      Wins 1 point
"""


def test_backgammon_as_others_write_it() -> None:
    game = games.load("backgammon")
    first, second = read("mat", game, SESSION)
    assert (first.problem, first.over, first.sign) == ("", False, -1)
    assert texts(game, first.actions) == [
        *("o rolls 65", "o 24/18", "o 18/13", "x rolls 42", "x 8/4", "x 6/4", "o rolls 51"),
        *("o 24/23", "o 23/18", "x rolls 44", "x 13/9", "x 13/9", "x 9/5", "x 9/5"),
    ]
    assert (second.problem, second.over, second.sign) == ("", False, 1)
    assert texts(game, second.actions)[-2:] in (["x 24/20", "x 20/14"], ["x 24/18", "x 18/14"])


def test_sgf_of_others_has_asides_variations_long_names_and_no_forced_passes() -> None:
    game = games.load("gomoku", size=9)
    text = "(;FF[4]GM[4]SZ[9]C[a \\] and (]RE[W+Resign];Black[aa];White[bb](;B[ca]N[main])(;B[ee];W[ff]))\n(;GM[4]SZ[9];B[ii])"
    first, second = read("sgf", game, text)
    assert (first.actions, first.over, first.sign) == ((0, 10, 2), False, -1)
    assert (second.actions, second.sign) == ((80,), None)
    othello = games.load("othello")
    event = next(each for each in (play_game(othello, uid) for uid in range(1, 99)) if 64 in np.frombuffer(each.record.actions, "<u2"))
    written = "".join(export("sgf", "r", othello, [event]))
    (whole,) = read("sgf", othello, written.replace(";B[]", "").replace(";W[]", ""))
    assert list(whole.actions) == np.frombuffer(event.record.actions, "<u2").tolist()


@pytest.mark.parametrize(("form", "name"), [("sgf", "backgammon"), ("pgn", "gomoku"), ("mat", "othello"), ("xml", "othello")])
def test_a_form_that_does_not_tell_the_game_is_refused_at_once(form: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"--format '?{form}"):
        read_games(form, games.load(name), b"")


def test_files_say_what_they_hold() -> None:
    assert [form_of(name) for name in ("a.SGF", "b.pgn", "c.mat", "d.txt", "e.jsonl")] == ["sgf", "pgn", "mat", "mat", "jsonl"]
    with pytest.raises(ConfigError, match=r"a\.b does not say what it holds"):
        form_of("a.b")


FORMS = {
    "gomoku": ("sgf", {"size": 9}),
    "hex": ("sgf", {"size": 5, "swap": True}),
    "othello": ("sgf", {"size": 6}),
    "openspiel:chess": ("pgn", {}),
    "backgammon": ("mat", {}),
    "connect_four": ("jsonl", {}),
}
NAMES = {"cp932": "予定表ソ能サム佐", "gbk": "王昞白棋不好", "latin-1": "éüñçZoe ß", "cp1251": "Крамник ", "utf-8": "のぞみé"}


@cache
def exported(name: str) -> tuple[Game, str, list[str], list[tuple[int, ...]]]:
    """A game's rules, its notation, two games as they are exported, one a piece, and their moves as they come back."""
    if name.startswith("openspiel"):
        pytest.importorskip("pyspiel")
    form, params = FORMS[name]
    game = games.load(name, **params)
    pieces = list(export(form, "r", game, [play_game(game, uid) for uid in (1, 2)]))
    if form == "mat":
        text = "".join(pieces)
        pieces = [text[: (second := text.index("\n Game 2"))], text[second:]]
    found = read(form, game, "".join(pieces))
    assert [each.over for each in found] == [True, True]
    return game, form, pieces, [each.actions for each in found]


@pytest.mark.parametrize("name", FORMS)
@given(st.data())
@settings(max_examples=12)
def test_an_export_that_is_cut_is_the_same_games_or_a_refusal(name: str, data: st.DataObject) -> None:
    game, form, pieces, games_of = exported(name)
    whole = "".join(pieces)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    found = read(form, game, cut)
    for number, each in enumerate(found):
        if each.problem:
            assert re.search(r"byte \d+: ", each.problem)
            assert number == len(found) - 1
        else:
            assert each.actions == games_of[number][: len(each.actions)]
            assert each.over == (each.actions == games_of[number])
    assert len(found) >= (len(cut) >= len(pieces[0])) + (len(cut) >= len(whole))
    assert not any(each.problem for each in found[: len(cut) >= len(pieces[0])])


@pytest.mark.parametrize("name", FORMS)
@given(times=st.integers(1, 3), mark=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]), end=st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=4)
def test_an_export_that_is_joined_padded_and_encoded_is_the_same_games(name: str, times: int, mark: str, end: str) -> None:
    game, form, pieces, games_of = exported(name)
    text = "".join(f"{end} {end}{''.join(pieces)}\0 " for _ in range(times)).replace("\n", end)
    found = list(read_games(form, game, text.encode(mark)))
    assert [each.actions for each in found] == games_of * times
    assert not any(each.problem for each in found)


@pytest.mark.parametrize("codec", NAMES)
@given(st.data())
@settings(max_examples=25)
def test_names_in_any_encoding_hide_no_move(codec: str, data: st.DataObject) -> None:
    """A file of which one cannot tell how it is encoded is refused by its byte."""
    game, form, pieces, games_of = exported("gomoku")
    name, comment = (data.draw(st.text(NAMES[codec], min_size=1)) for _ in range(2))
    declared = data.draw(st.sampled_from([f"CA[{codec}]", "CA[UTF-8]", ""]))
    text = "".join(pieces).replace("CA[UTF-8]", declared).replace("PB[", f"PB[{name}").replace(";W[", f"C[{comment}];W[", 3)
    try:
        found = list(read_games(form, game, text.encode(codec)))
    except ConfigError as error:
        assert re.search(r"byte \d+ may be half", str(error))  # noqa: PT017
        assert declared != f"CA[{codec}]"
    else:
        assert [each.actions for each in found] == games_of


@pytest.mark.parametrize(("form", "name"), [("sgf", "gomoku"), ("mat", "backgammon"), ("jsonl", "tic_tac_toe")])
@given(st.text(alphabet="(;)[]{}BWSZGM1234567890:/*ab \n\\\"',ameG-", max_size=60))
def test_whatever_a_file_holds_is_read_or_told(form: str, name: str, text: str) -> None:
    assert form in READERS
    for found in islice(read_games(form, games.load(name), text.encode()), 20):
        assert found.problem or not found.over or found.actions
