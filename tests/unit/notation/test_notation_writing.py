"""Exported games, read back: by a reader of each notation where one is at hand, else by the rules themselves."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from replay_games import play_game

from azq import games
from azq.errors import ConfigError
from azq.games import Game
from azq.notation.boards import coordinates
from azq.notation.writing import FORMS, as_event, export
from azq.replay.samples import Columns, judge
from azq.wire.messages import SampleEvent


def played(game: Game, count: int = 3) -> list[SampleEvent]:
    return [play_game(game, uid) for uid in range(1, count + 1)]


def actions_of(event: SampleEvent) -> list[int]:
    return [int(action) for action in np.frombuffer(event.record.actions, "<u2")]


@pytest.mark.parametrize("name", ["backgammon", "beasty_bar", "tic_tac_toe"])
def test_json_lines_hold_any_game(name: str) -> None:
    game = games.load(name)
    events = played(game)
    rows = [json.loads(line) for line in export("jsonl", "r", game, events)]
    assert [row["actions"] for row in rows] == [actions_of(event) for event in events]
    assert [(row["run"], row["uid"], row["game"], row["params"]) for row in rows] == [("r", n, name, dict(game.params)) for n in (1, 2, 3)]
    state = game.new_initial_state()
    assert rows[0]["moves"][0] == state.action_to_string(rows[0]["actions"][0])
    assert len(rows[0]["moves"]) == len(rows[0]["actions"])
    assert rows[0]["returns"] == list(events[0].returns)


@pytest.mark.parametrize(("name", "number"), [("gomoku", 4), ("othello", 2), ("hex", 11)])
def test_sgf_gives_the_moves_back(name: str, number: int) -> None:
    game = games.load(name)
    events = played(game)
    cells = coordinates(game)
    for event, text in zip(events, export("sgf", "r", game, events), strict=True):
        assert f"GM[{number}]SZ[{cells.size}]" in text
        nodes = re.findall(r";([BW])\[(\w*)\]", text)
        state = game.new_initial_state()
        for colour, point in nodes:
            assert colour == "BW"[state.current_player()]
            go = cells.pass_action if not point else (ord(point[1]) - 97) * cells.size + ord(point[0]) - 97
            state.apply_action(cells.action(point) if name == "hex" else go)
        assert state.is_terminal()
        assert state.history() == actions_of(event)
        assert f"RE[{'B+' if event.returns[0] > 0 else 'W+' if event.returns[0] < 0 else '0'}]" in text


def test_openspiel_plays_json_lines_to_the_same_results() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    for name in ("connect_four", "hex", "othello"):
        game = games.load(name)
        for row in map(json.loads, export("jsonl", "r", game, played(game))):
            peer = pyspiel.load_game(name).new_initial_state()
            for action in row["actions"]:
                peer.apply_action(action)
            assert peer.returns() == row["returns"]


@pytest.mark.parametrize("name", ["gomoku", "othello"])
def test_sgfmill_reads_the_same_points(name: str) -> None:
    sgf = pytest.importorskip("sgfmill.sgf")
    game = games.load(name)
    size = coordinates(game).size
    for event, text in zip(played(game), export("sgf", "r", game, played(game)), strict=True):
        read = sgf.Sgf_game.from_string(text)
        moves = [node.get_move() for node in read.get_main_sequence()[1:]]
        assert [size * size if point is None else size * (size - 1 - point[0]) + point[1] for _, point in moves] == actions_of(event)
        assert read.get_winner() == {1: "b", -1: "w", 0: None}[np.sign(event.returns[0])]


def test_a_swap_in_hex_is_written_and_swap2_refused() -> None:
    game = games.load("hex", size=5, swap=True)
    (text,) = export("sgf", "r", game, [as_event(game, 1, [5, 25, 2, 24, 7, 19, 12, 14, 17, 18, 22], "test", 1)])
    assert ";B[a2];W[swap-pieces];B[c1];W[e5];" in text
    with pytest.raises(ConfigError, match="not of gomoku with swap2; jsonl"):
        export("sgf", "r", games.load("gomoku", size=9, swap2=True), [])


def test_an_unknown_notation_is_refused_naming_all() -> None:
    with pytest.raises(ConfigError, match=", ".join(FORMS)):
        export("gib", "r", games.load("hex"), [])


@pytest.mark.parametrize("name", ["connect_four", "backgammon", "beasty_bar", "blob", "othello"])
def test_each_decision_teaches_its_move_and_its_players_result(name: str) -> None:
    game = games.load(name)
    played = play_game(game, 7)
    actions = np.frombuffer(played.record.actions, "<u2").tolist()
    event = as_event(game, 3, actions, "import", 5)
    assert (event.record.uid, event.worker, event.finished_ms) == (3, "import", 5)
    assert event.returns == pytest.approx(played.returns)
    judged = judge(game, [event], Columns(root_value_fraction=0.5))
    assert not judged.refused
    (samples,) = judged.samples
    decisions = np.frombuffer(played.record.simulations, "<u2") > 0
    assert len(samples) == judged.counts[3] == decisions.sum()
    assert samples.policies.argmax(1).tolist() == np.asarray(actions)[decisions].tolist()
    assert samples.policies.max(1) == pytest.approx(1.0)
    values = np.frombuffer(event.record.root_values, "<f4").reshape(len(actions), -1)
    assert not values[~decisions].any()
    (plain,) = judge(game, [played]).samples
    np.testing.assert_allclose(samples.values, plain.values, atol=1e-6)  # whatever the share of root values: they say the result too


def test_moves_after_a_resignation_teach_nothing() -> None:
    game = games.load("connect_four")
    actions = np.frombuffer(play_game(game, 2).record.actions, "<u2").tolist()
    (samples,) = judge(game, [as_event(game, 1, actions, "import", 5, taught=4)]).samples
    assert samples.policies.argmax(1).tolist() == actions[:4]
