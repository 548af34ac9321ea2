"""Positions as lines of text, both ways; broken lines are refused by the rule they break."""

from __future__ import annotations

import random
from typing import Any

import pytest

from azq import games
from azq.errors import ConfigError

START = "4HPwATDgc/ABMA"  # of backgammon
REST = "; hands PaKaMoCh LiHiCrSn; piles SeGiSnCrHiLi SkPaKaMoChSeZeGi; plays 0"  # of beasty bar
FOUR = "queue Sk0 Ze0 Hi1 Li1; bar - -; out - -; hands "  # the same with four animals in the queue
BROKEN: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    ("connect_four", {}, [
        ("7/7/7/7/7/7", "side to move is missing"),
        ("7/7/7/7/7 x", "row 5"),
        ("7/7/7/7/3x3/7 o", "hangs in the air"),
        ("7/7/7/7/7/3x3 x", "x has moved 1 times more"),
        ("7/7/7/7/7/8 x", "row 6 does not have 7 cells"),
        ("7/7/7/7/7/3y3 o", "'y' is no cell"),
        ("7/7/7/7/xxxx3/oooo3 x", "four in line already"),
        ("7/7/7/7/7/7 x 5", "nothing follows"),
        ("", "row 1"),
        ("99999999999999999999/7/7/7/7/7 x", "row 1"),
    ]),
    ("tic_tac_toe", {}, [
        ("3/3/3 o", "x has moved 0 times"),
        ("xxx/oo1/o2 x", "three in line already"),
    ]),
    ("othello", {}, [
        ("8/8/8/3ox3/3xo3/8/8/8 o", "with 4 discs it is not this side's move"),
        ("8/8/8/3xo3/3ox3/8/8/8 x", "not how a game begins"),
        ("8/8/8/3xx3/3xx3/8/8/8 x", "not how a game begins"),
        ("8/8/8/2xxx3/3xo3/8/8/8 x", "with 5 discs"),
        ("8/8/8/3o4/3xo3/8/8/8 x", "never empty"),
        ("x7/8/8/3ox3/3xo3/8/8/8 x", "stands apart"),
        ("8/8/8/3ox3/3xo3/8/8/8 x 1", "nothing follows"),
        ("8/8/8/3ox3/3xo3/8/8 x", "row 7 is not followed by '/'"),
        ("8/8/8/3ox2/3xo3/8/8/8 x", "row 4 does not have 8 cells"),
        ("8/8/8/3ox4/3xo3/8/8/8 x", "row 4 does not have 8 cells"),
        ("8/8/8/3o#3/3xo3/8/8/8 x", "'#' is no cell"),
        ("8/8/8/3ox3/3xo3/8/8/8", "side to move is missing"),
        ("8/8/8/3ox3/3xo3/8/8/8 b", "side to move is missing"),
    ]),
    ("gomoku", {"size": 9}, [
        ("9/9/9/9/4x4/9/9/9/9 x e5", "not this side's move"),
        ("9/9/9/9/4x4/9/9/9/9 o", "is no stone of the side that moved"),
        ("9/9/9/9/4x4/9/9/9/9 o e6", "'e6' is no stone of the side that moved"),
        ("9/9/9/9/4x4/9/9/9/9 o j1", "'j1' is no stone of the side that moved"),
        ("9/9/9/9/9/9/9/9/9 x a1", "nobody has moved"),
        ("xxxxx4/ooooo4/9/9/9/9/9/9/9 x a2", "the side to move has five"),
        ("xxxxx4/oooo5/9/9/9/9/9/9/8x o i9", "not this side's move"),
        ("xxxxx4/oooo1o3/9/9/9/9/9/9/8x o i9", "five in line were there before the last move"),
        ("9/9/9/9/10/9/9/9/9 x", "row 5 does not have 9 cells"),
        ("9/9/9/9/4b4/9/9/9/9 o e5", "'b' is no cell"),
    ]),
    ("gomoku", {"size": 9, "swap2": True}, [
        ("9/9/9/9/4x4/9/9/9/9 o e5", "ends with place, choose, black=0 or black=1"),
        ("9/9/9/9/4x4/9/9/9/9 o e5 choose", "after three stones or five"),
        ("9/9/9/9/4x4/9/9/9/9 o e5 black=1", "colours are chosen after three stones"),
        ("9/9/9/9/4x4/9/9/9/9 x e5 place", "not this side's move"),
        ("9/9/9/3xo4/3xox3/9/9/9/9 o d5 place", "after five stones the colours are chosen"),
        ("place", "ends with place, choose"),
    ]),
    ("2048", {}, [
        ("2,.,.,./.,.,.,./.,.,.,./.,.,.,. 0 0", "not those of 2 that were placed"),
        ("2,3,.,./.,.,.,./.,.,.,./.,.,.,. 0 0", "b1 is '3'"),
        ("2,2,.,./.,.,.,./.,.,.,. 0 0", "is '. 0'|c"),
        ("8,.,.,./.,.,.,./.,.,.,./.,.,.,. 0 0", "before the first move nothing joins"),
        ("2,2,.,./.,.,.,./.,.,.,./.,.,.,. 1 2", "tiles to be placed"),
        ("2,2,.,./.,.,.,./.,.,.,./.,.,.,. x 0", "the moves made"),
        ("2,2,2,2/2,2,2,2/2,2,2,2/2,2,2,2 15 1", "no empty cell"),
    ]),
    ("blob", {"players": 3, "cards": 2, "trump": "spades", "dealer": 2}, [
        ("c2 tS d2 | AS KS / 2S 3H / 4H 5H | 2 0 0 | | 0 0 0", "bid 0 cannot be made here"),
        ("c2 tS d2 | AS KS / AS 3H / 4H 5H | | | 0 0 0", "AS is dealt twice"),
        ("c2 tS d2 | AS KS QS / 2S 3H / 4H 5H | | | 0 0 0", "more cards are dealt"),
        ("c2 tS d2 | AS KS / 2S 3H / 4H 5H | 2 0 1 | 2S | 0 0 0", "2S cannot be played here"),
        ("c2 tS d2 | AS KS / 2S 3H / 4H 5H | 2 0 1 | AS 3H | 0 0 0", "3H cannot be played here"),
        ("c2 tH d2 | AS KS / 2S 3H / 4H 5H | | | 0 0 0", "another trump"),
        ("c3 tS d2 | / / | | | 0 0 0", "another number of cards"),
        ("c2 tS d1 | / / | | | 0 0 0", "the dealer of this round is player 2"),
        ("c2 tS d2 | / / | | ", "five parts"),
        ("c2 tS d2 | 1S / / | | | 0 0 0", "'1S' is no card"),
        ("c2 tS d2 | / | | | 0 0 0", "one hand for each of 3"),
        ("c2 tS d2 | / / | | | 0 0", "one total for each of 3"),
    ]),
    ("backgammon", {}, [
        (f"{START}", "dice are two digits"),
        (f"{START}:70", "dice are two digits"),
        (f"{START}:30", "dice are two digits"),
        ("4HPwATDgc/ABM:31", "14 characters"),
        ("4HPwATDgc/AB*A:31", "no character of a position ID"),
        ("/////////////A:31", "more checkers than fit|checkers of one player"),
        (f"{START}:31:x", "no field of a backgammon position"),
        (f"{START}:31:u4", "was not rolled"),
        (f"{START}:00:u4", "before the roll"),
        (f"{START}:31:throw", "no dice before the first throw"),
        ("AAAAAAAAAAAAAA:31", "both players have borne off"),
        ("4HPwATDgc/ABMB:31", "goes on after the last checker"),
        (f"{START}:31:s13", "belongs to a double partly played"),
        (f"{START}:11:s13", "belongs to a double partly played"),
        (f"{START}:11:u11:s26", "no field of a backgammon position"),
        (f"{START}:31:u33", "more dice unplayed"),
        (f"{START}:11:u11111", "more dice unplayed"),
        (f"{START}:31:t1001", "turns end at 1000"),
        (f"{START}:00:coin", "the parameter opening"),
        (f"{START}:00:throw:p1", "nobody is to move"),
        (f"{START}:00:placing3", "the parameter start"),
    ]),
    ("beasty_bar", {}, [
        ("queue -", "six parts"),
        ("bar - -; queue -; out - -; hands - -; piles - -; over", "'queue' belongs where 'bar' stands"),
        ("queue Xx0; bar - -; out - -" + REST, "'Xx' is no animal"),
        ("queue Ze2; bar - -; out - -" + REST, "'Ze2' is no animal with its player"),
        ("queue Ze0; bar -; out - -" + REST, "'bar' takes 2 words"),
        ("queue Ze0 Sk0; bar - -; out Ze -" + REST, "player 0's zebra is in two places"),
        ("queue Ze0; bar - -; out - -" + REST, "player 0's skunk is nowhere"),
        ("queue Ze0 Sk0; bar - -; out - -" + REST, "seats take turns from player 0"),
        ("queue Sk0; bar Ze -; out - -; hands PaKaMoCh LiHiCrSn; piles SeGiSnCrHiLi SkPaKaMoChSeZeGi; plays 0", "seats take turns"),
        ("queue Sk0; bar Ze -; out - HiLi; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 0", "odd number"),
        ("queue -; bar SkZe -; out - HiLi; hands PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 0", "fifth animal"),
        (FOUR + "PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; plays 1", "not player 1's turn"),
        (FOUR + "PaKaMo CrSnSkPa; piles SeGiSnCrHiLiCh KaMoChSeZeGi; plays 0", "holds 3 cards, not 4"),
        (FOUR + "PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; draws 0", "played last draws"),
        (FOUR + "PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; over", "not over"),
        (FOUR + "PaKaMoCh CrSnSkPa; piles SeGiSnCrHiLi KaMoChSeZeGi; 0", "the turn is"),
    ]),
    ("hex", {"size": 5, "swap": True}, [
        ("5/5/5/5/5 o swapped", "swapped, yet o has none"),
        ("5/5/5/5/5 x stolen", "comes 'swapped' or nothing"),
    ]),
    ("hex", {"size": 5}, [
        ("5/5/5/5/5 x swapped", "comes 'swapped' or nothing"),
        ("x4/x4/x4/x4/x4 o", "not this side's move"),
        ("x4/xo3/xo3/xo3/xoo2 x", "joined its edges already"),
        ("xo1xo/xo1xo/xo1xo/xo1xo/xo1x1 o", "joined before the last move"),
        ("5/5/5/5/6 x", "row 5 does not have 5 cells"),
        ("5/5/5/5/2w2 o", "'w' is no cell"),
    ]),
]  # fmt: skip


RULES: list[tuple[str, dict[str, Any], int]] = [
    ("connect_four", {}, 30),
    ("tic_tac_toe", {}, 30),
    ("2048", {"max_moves": 40}, 3),
    ("gomoku", {"size": 9}, 5),
    ("gomoku", {"size": 9, "exact5": True}, 5),
    ("hex", {"size": 5}, 10),
    ("hex", {"size": 5, "swap": True}, 100),
    ("othello", {"size": 6}, 10),
    ("othello", {}, 5),
    ("backgammon", {}, 5),
    ("backgammon", {"start": "race"}, 5),
    ("backgammon", {"start": "bearoff", "opening": "uniform"}, 5),
    ("backgammon", {"scoring": "winloss"}, 5),
    ("blob", {"players": 4, "cards": 5}, 6),
    ("blob", {"players": 3, "cards": 7, "trump": "none"}, 6),
    ("blob", {"players": 5, "cards": 3, "trump": "hearts", "dealer": 2}, 6),
    ("blob", {"players": 8, "cards": 6, "trump": "clubs", "hook": False}, 6),
    ("blob", {"players": 4, "cards": 4, "trump": "any", "any_cards": True}, 6),
    ("blob", {"players": 4, "cards": 3, "mode": "game"}, 2),
]


@pytest.mark.parametrize(("name", "params", "count"), RULES)
def test_a_position_is_its_notation_at_every_ply(name: str, params: dict[str, Any], count: int) -> None:
    game, rng = games.load(name, **params), random.Random(4)
    for _ in range(count):
        state, over = game.new_initial_state(), False
        while not over:
            again = game.state_from_notation(state.notation())
            assert (again.notation(), str(again)) == (state.notation(), str(state))
            assert (again.current_player(), again.returns()) == (state.current_player(), state.returns())
            assert again.legal_actions() == state.legal_actions()
            assert again.is_chance_node() == state.is_chance_node()
            if state.is_chance_node():
                assert again.chance_outcomes() == state.chance_outcomes()
            for player in range(game.num_players()):
                assert (again.packed_observation(player) == state.packed_observation(player)).all()
                if game.is_hidden():
                    assert again.information_state_string(player) == state.information_state_string(player)
            over = state.is_terminal()
            if not over:
                state.apply_action(rng.choice(state.legal_actions()))


@pytest.mark.parametrize(("name", "params", "text", "rule"), [(name, params, *case) for name, params, cases in BROKEN for case in cases])
def test_a_broken_line_is_refused_by_its_rule(name: str, params: dict[str, Any], text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        games.load(name, **params).state_from_notation(text)
