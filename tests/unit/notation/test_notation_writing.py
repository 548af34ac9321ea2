"""Exported games, read back: by a reader of each notation where one is at hand, else by the rules themselves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from replay_games import play_game
from waiting import PATIENCE_S

from azq import games
from azq.errors import ConfigError
from azq.games import Game
from azq.notation.boards import coordinates
from azq.notation.units import unit
from azq.notation.writing import FORMS, as_event, export
from azq.replay.samples import Columns, judge
from azq.wire.messages import SampleEvent

GNUBG = shutil.which("gnubg", path="/usr/games:/usr/bin:/usr/local/bin")


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


def test_pgn_gives_the_moves_back() -> None:
    pytest.importorskip("pyspiel")
    game = games.load("openspiel:chess")
    (event,) = played(game, 1)
    (text,) = export("pgn", "r", game, [event])
    tags, moves = text.strip().split("\n\n")
    assert '[Round "1"]' in tags.splitlines()
    assert max(map(len, moves.splitlines())) <= 80
    *words, result = [word for word in moves.split() if not re.fullmatch(r"\d+\.", word)]
    assert result in {"1-0", "0-1", "1/2-1/2"}
    state = games.load("openspiel:chess").new_initial_state()
    for word in words:
        state.apply_action(next(action for action in state.legal_actions() if state.action_to_string(action) == word))
    assert state.history() == actions_of(event)


def test_openspiel_reads_pgn_and_json_lines_to_the_same_results() -> None:
    pyspiel = pytest.importorskip("pyspiel")
    chess = games.load("openspiel:chess")
    (text,) = export("pgn", "r", chess, [as_event(chess, 1, [3009, 2426, 3594, 1799], "test", 1)])
    assert '[Result "0-1"]' in text  # black, OpenSpiel's player 0, mates
    state = pyspiel.load_game("chess").new_initial_state()
    for word in ("f3", "e5", "g4", "Qh4#"):
        assert word in text
        state.apply_action(state.string_to_action(word))
    assert state.returns() == [1.0, -1.0]
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


def test_mat_puts_rolls_and_moves_of_both_sides_beside_each_other() -> None:
    game = games.load("backgammon")
    head, *parts = export("mat", "r", game, played(game, 2))
    assert head == " 0 point match\n"
    text = "".join(parts)
    assert [int(number) for number in re.findall(r"^ Game (\d+)$", text, re.M)] == [1, 2]
    first = text.partition(" Game 2")[0]
    rows = re.findall(r"^ *(\d+)\) (.*)$", first, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, len(rows) + 1))
    (event,) = played(game, 1)
    (told,) = map(json.loads, export("jsonl", "r", game, [event]))
    assert len(re.findall(r"\b[1-6][1-6]:", first)) == sum(words.split()[1] == "rolls" for words in told["moves"])
    points = round(unit(game).scale * event.returns[0])
    assert f"Wins {abs(points)} point" in first


@pytest.mark.skipif(GNUBG is None, reason="no gnubg")
def test_gnubg_reads_what_was_won(tmp_path: Path) -> None:
    """The last game's points it counts by itself, from the board that the moves lead to."""
    game = games.load("backgammon")
    events = played(game, 4)
    file = tmp_path / "session.mat"
    file.write_text("".join(export("mat", "r", game, events)))
    assert GNUBG
    command = [GNUBG, "-t", "-q"]
    orders = f'set jacoby off\nimport mat "{file}"\nshow score\n'
    said = subprocess.run(command, input=orders, capture_output=True, text=True, timeout=PATIENCE_S, env={"HOME": str(tmp_path)})
    points = [round(unit(game).scale * event.returns[0]) for event in events]
    won = [sum(max(side * each, 0) for each in points) for side in (1, -1)]
    assert f"The score (after 4 games) is: r-x {won[0]}, r-o {won[1]}" in said.stdout
    assert not re.search("illegal|invalid|warning", said.stdout + said.stderr, re.I), said


@pytest.mark.parametrize(("form", "name"), [("sgf", "backgammon"), ("pgn", "gomoku"), ("mat", "othello")])
def test_a_game_that_a_notation_does_not_know_is_refused_at_once(form: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"--format {form} tells games of .*, not of {name}; jsonl"):
        export(form, "r", games.load(name), [])


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
