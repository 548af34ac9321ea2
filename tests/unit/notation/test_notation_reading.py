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


@pytest.mark.parametrize(
    ("name", "form"), [("gomoku", "sgf"), ("othello", "sgf"), ("hex", "sgf"), ("backgammon", "jsonl"), ("beasty_bar", "jsonl")]
)
def test_written_games_come_back_move_by_move(name: str, form: str) -> None:
    game = games.load(name)
    events = [play_game(game, uid) for uid in range(1, 4)]
    found = read(form, game, "".join(export(form, "r", game, events)))
    assert [(each.number, each.over, each.problem) for each in found] == [(1, True, ""), (2, True, ""), (3, True, "")]
    assert [list(each.actions) for each in found] == [np.frombuffer(event.record.actions, "<u2").tolist() for event in events]
    if form != "jsonl":
        assert [each.sign for each in found] == [np.sign(event.returns[0]) for event in events]


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


@pytest.mark.parametrize(("form", "name"), [("sgf", "backgammon"), ("xml", "othello")])
def test_a_form_that_does_not_tell_the_game_is_refused_at_once(form: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"--format '?{form}"):
        read_games(form, games.load(name), b"")


def test_files_say_what_they_hold() -> None:
    assert [form_of(name) for name in ("a.SGF", "e.jsonl")] == ["sgf", "jsonl"]
    with pytest.raises(ConfigError, match=r"a\.b does not say what it holds"):
        form_of("a.b")


FORMS = {
    "gomoku": ("sgf", {"size": 9}),
    "hex": ("sgf", {"size": 5, "swap": True}),
    "othello": ("sgf", {"size": 6}),
    "connect_four": ("jsonl", {}),
}
NAMES = {"cp932": "予定表ソ能サム佐", "gbk": "王昞白棋不好", "latin-1": "éüñçZoe ß", "cp1251": "Крамник ", "utf-8": "のぞみé"}


@cache
def exported(name: str) -> tuple[Game, str, list[str], list[tuple[int, ...]]]:
    """A game's rules, its notation, two games as they are exported, one a piece, and their moves as they come back."""
    form, params = FORMS[name]
    game = games.load(name, **params)
    pieces = list(export(form, "r", game, [play_game(game, uid) for uid in (1, 2)]))
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


@pytest.mark.parametrize(("form", "name"), [("sgf", "gomoku"), ("jsonl", "tic_tac_toe")])
@given(st.text(alphabet="(;)[]{}BWSZGM1234567890:/*ab \n\\\"',ameG-", max_size=60))
def test_whatever_a_file_holds_is_read_or_told(form: str, name: str, text: str) -> None:
    assert form in READERS
    for found in islice(read_games(form, games.load(name), text.encode()), 20):
        assert found.problem or not found.over or found.actions
