"""gnubg and pubeval as players: whole turns in micro-moves, turns others began, and engines that misbehave."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.random_play import settle

from azq import games
from azq.arena.engines import gnubg
from azq.arena.engines.gnubg import Gnubg, GnubgPlayer, board_of, is_fresh, lines, phase, read_position_id, turn, write_position_id
from azq.arena.grade import grade
from azq.arena.player import Line
from azq.errors import ConfigError, EngineError, MissingExtra
from azq.games import State
from azq.ratings import positions

GAME = games.load("backgammon")
START = "4HPwATDgc/ABMA"
needs_gnubg = pytest.mark.skipif(importlib.util.find_spec("gnubg_nn") is None, reason="gnubg-nn is not installed")

ENGINE = """
import json, sys
for line in sys.stdin:
    {body}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a script in the engine's place, given the statement that makes its answer."""

    def install(body: str) -> None:
        script = tmp_path / "engine.py"
        script.write_text(ENGINE.format(body=body))
        monkeypatch.setattr(gnubg, "SCRIPT", script)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())

    return install


def fresh(seed: int, turns: int) -> State:
    """A turn about to be played in a random game."""
    rng = random.Random(seed)
    state = GAME.new_initial_state()
    settle(state, rng)
    for _ in range(turns):
        mover = state.current_player()
        while state.current_player() == mover:
            state.apply_action(rng.choice(state.legal_actions()))
        settle(state, rng)
    return state


def test_the_start_is_read_and_written() -> None:
    own, other = read_position_id(START)
    assert own == other
    assert {point: count for point, count in enumerate(own, 1) if count} == {6: 5, 8: 3, 13: 5, 24: 2}
    assert write_position_id((own, other), on_roll=True) == START


side = st.lists(st.integers(0, 24), max_size=15).map(lambda points: tuple(points.count(point) for point in range(25)))


@given(side, side)
def test_position_ids_survive(own: tuple[int, ...], other: tuple[int, ...]) -> None:
    board = (own, other)
    assert read_position_id(write_position_id(board, on_roll=True)) == board
    assert read_position_id(write_position_id(board, on_roll=False)) == (other, own)


@pytest.mark.parametrize("text", ["", "4HPwATDgc/AB", "4HPwATDgc/AB!A", "//////////////"])
def test_what_is_no_position_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no position ID"):
        read_position_id(text)


@pytest.mark.parametrize("seed", range(6))
def test_every_line_leads_to_its_end(seed: int) -> None:
    state = fresh(seed, 4 * seed)
    player = state.current_player()
    for end, line in lines(state).items():
        after = state.clone()
        for action in line:
            after.apply_action(action)
        assert after.current_player() != player
        assert board_of(after, player) == end


def test_phases_have_names() -> None:
    start = read_position_id(START)
    race = ((0,) * 6 + (3,) + (0,) * 18, (0,) * 9 + (2,) + (0,) * 15)
    assert (phase(start), phase(race), phase(((2,) + (0,) * 24, (0,) * 5 + (1,) + (0,) * 19))) == ("contact", "race", "bearoff")


def test_the_turn_at_hand_is_found_in_a_history() -> None:
    state = fresh(3, 5)
    assert is_fresh(state)
    state.apply_action(state.legal_actions()[0])
    begin, now = turn(GAME, state.history())
    assert is_fresh(begin)
    assert not is_fresh(now)
    assert now.notation() == state.notation()
    begin, now = turn(GAME, Line(GAME.state_from_notation(f"{START}:31"), [30]))
    assert (begin.notation(), is_fresh(now)) == (f"{START}:31", False)


def test_an_unknown_name_and_a_missing_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="gnubg:0, gnubg:1, gnubg:2, pubeval"):
        GnubgPlayer("gnubg:9", GAME)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"azq\[gnubg\]"):
        GnubgPlayer("pubeval", GAME)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("sys.exit('out of books')", "died .* 'out of books'"),
        ("answer = [1]", "nonsense"),
        ("answer = {'end': [[1, 2], None]}", "nonsense"),
        ("answer = {'end': [[0] * 25, [0] * 25]}", "a turn that the rules do not have"),
        ("import time; time.sleep(100)", "gave no answer"),
    ],
)
def test_what_an_engine_does_wrong_is_one_error_that_names_the_position(engine: Callable[[str], None], body: str, what: str) -> None:
    engine(body)
    player = GnubgPlayer("gnubg:0", GAME, deadline_s=0.3 if "sleep" in body else 30)
    with pytest.raises(EngineError, match=f"engine gnubg:0 .*{what}.* at backgammon {START}"):
        player.choose([Line(GAME.state_from_notation(f"{START}:31"))])
    player.close()


@pytest.mark.parametrize("answer", ["{'values': 'no'}", "{'values': [1.0]}", "{}"])
def test_values_that_do_not_fit_are_nonsense(engine: Callable[[str], None], answer: str) -> None:
    engine(f"answer = {answer}")
    with pytest.raises(EngineError, match="nonsense"):
        Gnubg("gnubg:0").values([START, START])


@needs_gnubg
@pytest.mark.parametrize("name", ["gnubg:0", "pubeval"])
def test_the_engines_opening_is_played_in_micro_moves(name: str) -> None:
    player = GnubgPlayer(name, GAME)
    line = Line(GAME.state_from_notation(f"{START}:31"))
    moves = []
    for _ in range(2):
        (action,) = player.choose([line])
        moves.append(action)
        line.append(action)
    player.close()
    assert sorted(moves) == [6 * 5 + 0, 6 * 7 + 2]  # 8/5 6/5, which every engine plays


@needs_gnubg
@pytest.mark.parametrize("name", ["gnubg:0", "pubeval"])
def test_a_turn_begun_by_another_is_played_on(name: str) -> None:
    player = GnubgPlayer(name, GAME)
    for seed in range(20):
        state = fresh(seed, seed)
        mover = state.current_player()
        state.apply_action(random.Random(seed).choice(state.legal_actions()))
        while state.current_player() == mover:
            (action,) = player.choose([state.history()])
            assert action in state.legal_actions()
            state.apply_action(action)
    player.close()


@needs_gnubg
@pytest.mark.parametrize("name", ["gnubg:0", "pubeval"])
def test_values_of_the_ends_agree_with_the_turn_played(name: str) -> None:
    """The board goes to the engine the right way round: what it plays is what it values most."""
    engine = Gnubg(name)
    agree = 0
    for seed in range(40):
        state = fresh(seed, 2 + seed % 9)
        ends = list(lines(state))
        position_id, dice = state.notation().split(":")[:2]
        values = engine.values([write_position_id(end, on_roll=False) for end in ends])
        agree += len(ends) == 1 or engine.end(position_id, (int(dice[0]), int(dice[1]))) == ends[values.index(min(values))]
    engine.close()
    assert agree >= 38  # near ties aside


def test_the_graded_positions_are_whole() -> None:
    graded = positions.load("backgammon")
    assert len(graded) >= 500
    assert {one.group for one in graded} == {"contact", "race", "bearoff"}
    best = {one.notation: max(one.moves, key=one.moves.__getitem__) for one in graded}

    class Best:
        name = "best"

        def choose(self, histories: list[Line]) -> list[int]:
            return [best[history.start.notation()][len(history)] for history in histories]

        def close(self) -> None: ...

    found = grade(GAME, Best(), graded)  # type: ignore[arg-type]
    assert (found.mean_loss, found.unlisted) == (0, 0)
    for one in positions.choose(graded, 60, 1):
        assert len(lines(GAME.state_from_notation(one.notation))) == len(one.moves)


@needs_gnubg
def test_gnubg_loses_little_and_pubeval_more() -> None:
    graded = positions.load("backgammon")
    loss = {}
    for name in ("gnubg:0", "pubeval"):
        player = GnubgPlayer(name, GAME)
        loss[name] = grade(GAME, player, graded).mean_loss
        player.close()
    assert loss["gnubg:0"] < 0.006
    assert 0.02 < loss["pubeval"] < 0.06
