from __future__ import annotations

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE_S

from azq import games, pretrained
from azq.arena.levels import Level
from azq.config import SearchConfig, load, parse_run
from azq.console import move, play
from azq.errors import ConfigError, NotFound, WeightsError, WireError
from azq.host.rundir import RunDir
from azq.search.evaluator import UniformEvaluator

GAME = games.load("tic_tac_toe")


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> move.Agent:
    made = move.Agent(GAME, UniformEvaluator(9), 3, SearchConfig(algorithm="puct"), 400)
    monkeypatch.setattr(move, "open_player", lambda *_, **__: made)
    return made


def answers(text: str) -> list[dict[str, Any]]:
    sink = io.StringIO()
    move.move(load(), "tic_tac_toe", None, "latest", 400, io.StringIO(text), sink)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def test_each_line_gets_its_move_in_order(player: move.Agent) -> None:
    given = [[0, 4, 1], [0, 4, 1, 2, 3], []]
    found = answers("".join(json.dumps({"actions": actions}) + "\n\n" for actions in given))
    assert [answer["action"] for answer in found[:2]] == [2, 6]  # both must stop a line of three
    told = {"action", "action_text", "value", "visit_counts", "priors", "principal_variation", "principal_variation_texts"}
    assert all(set(answer) == told for answer in found)
    assert all(answer["principal_variation"][0] == answer["action"] for answer in found)
    assert all(sum(answer["priors"]) == pytest.approx(1.0, abs=1e-4) for answer in found)
    assert len(found[2]["visit_counts"]) == 9


def test_a_notation_is_answered_as_its_actions_are(player: move.Agent) -> None:
    state = GAME.new_initial_state()
    for action in (0, 4, 1):
        state.apply_action(action)
    lines = [
        {"actions": [0, 4, 1]},
        {"position": state.notation()},
        {"position": GAME.new_initial_state().notation(), "actions": [0, 4, 1]},
    ]
    found = answers("".join(json.dumps(line) + "\n" for line in lines))
    assert [answer["action"] for answer in found] == [2, 2, 2]
    assert found[0]["action_text"] == state.action_to_string(2)


def test_a_byte_order_mark_is_read_over(player: move.Agent) -> None:
    assert [answer["action"] for answer in answers('\ufeff{"actions": [0, 4, 1]}\n')] == [2]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("not json", "line 2"),
        ('{"moves": [1]}', "actions"),
        ('{"actions": [1.5]}', "line 2"),
        ('{"actions": [true]}', "line 2"),
        ('{"actions": [0], "actions": [1]}', "twice"),
        ('{"actions": [0, 0]}', "0"),
        ('{"actions": [99]}', "99"),
        ('{"actions": [0, 3, 1, 4, 2]}', "over"),
        ('{"actions": [0, 3, 1, 4, 2, 5]}', "over"),
        ('{"position": "x"}', "no position"),
        ('{"position": 3}', "form"),
        ('{"position": null}', "form"),
    ],
)
def test_a_wrong_line_is_named_and_those_before_it_answered(player: move.Agent, line: str, named: str) -> None:
    sink = io.StringIO()
    with pytest.raises(WireError, match=named) as caught:
        move.move(load(), "tic_tac_toe", None, "latest", 400, io.StringIO('{"actions": []}\n' + line + "\n"), sink)
    assert "line 2" in str(caught.value)
    assert len(sink.getvalue().splitlines()) == 1


def test_no_simulations_are_refused() -> None:
    with pytest.raises(ConfigError, match="num-simulations"):
        move.move(load(), "tic_tac_toe", None, "latest", 0, io.StringIO(""), io.StringIO())


def test_a_dialogue_gets_its_answer_before_the_next_line(player: move.Agent) -> None:
    ours, theirs = os.pipe()
    back, sink_end = os.pipe()
    with os.fdopen(ours) as source, os.fdopen(sink_end, "w") as sink, os.fdopen(back) as replies, os.fdopen(theirs, "w") as lines:
        worker = threading.Thread(target=move.move, args=(load(), "tic_tac_toe", None, "latest", 400, source, sink))
        worker.start()
        for actions in ([], [4]):
            lines.write(json.dumps({"actions": actions}) + "\n")
            lines.flush()
            assert "action" in json.loads(replies.readline())
        lines.close()
        worker.join(PATIENCE_S)
        assert not worker.is_alive()


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    config = load(overrides=[f'home="{tmp_path}"', "run.params.size=5"])  # a size that none come with azq for
    with pytest.raises(NotFound, match="no weights"):
        move.open_player(config, game="hex", run=None, weights="latest", num_simulations=1)
    with pytest.raises(NotFound, match="absent"):
        move.open_player(config, game="hex", run="absent", weights="latest", num_simulations=1)


def test_a_search_that_is_asked_for_goes_before_that_of_the_weights() -> None:
    def searching(*asked: str) -> SearchConfig:
        agent = move.open_player(load(overrides=asked), game=None, run=None, weights="azq:tic_tac_toe", num_simulations=1)
        agent.evaluator.close()
        return agent.search

    own = searching()
    assert searching("search.c_scale=4.0") == own.model_copy(update={"c_scale": 4.0}) != own
    with pytest.raises(ConfigError, match="schedule"):
        searching("search.schedule=[{at = 0.5, num_simulations = 4}, {at = 0.1, num_simulations = 8}]")


def test_weights_of_a_file_say_their_game_and_search_as_its_preset_does(tmp_path: Path) -> None:
    def opened(of: str, *asked: str, game: str | None = None, run: str | None = None, weights: str = "") -> move.Agent:
        config = load(overrides=[f'home="{tmp_path}"', *asked])
        file = weights or str(pretrained.verified(of))
        agent = move.open_player(config, game=game, run=run, weights=file, num_simulations=1)
        agent.evaluator.close()
        return agent

    assert opened("othello").search.decisive_moves
    assert not opened("othello", "search.decisive_moves=false").search.decisive_moves
    assert opened("gomoku").game.params["size"] == 9
    with pytest.raises(WeightsError, match="do not fit"):
        opened("gomoku", "run.params.size=11")  # what is asked for goes before what the file says
    for weights in ("", "latest"):
        agent = opened("othello", 'run.game="gomoku"', "run.params.size=9", game="othello", weights=weights)
        assert agent.game.name == "othello", "parameters of another game are left alone"
    RunDir(tmp_path, "mine").create(parse_run({"run": {"game": "hex", "params": {"size": 7}}, "search": {"c_scale": 7.0}}, "test"))
    assert opened("hex").search.c_scale == opened("hex", run="mine").search.c_scale == 7.0
    assert opened("gomoku").search.c_scale == 1.0, "the newest run is of another game"
    both = f"{pretrained.verified('hex')},{pretrained.verified('gomoku')}"
    for wrong in ({"game": "hex"}, {"run": "mine"}, {"weights": both}):
        with pytest.raises(ConfigError, match="play gomoku, not hex"):
            opened("gomoku", **wrong)


def test_a_person_plays_takes_back_and_sees_the_end(player: move.Agent) -> None:
    said: list[str] = []
    replies = iter(["x", "9", "0", "u", "h", "(0,0)", "q"])
    play.match(player, 0, lambda _: next(replies), said.append)
    text = "".join(said)
    assert text.count("agent plays") == 2
    assert play.HELP in text
    assert "% (value " in text


def test_a_game_against_the_agent_ends_with_a_verdict(player: move.Agent) -> None:
    said: list[str] = []

    def first_legal(prompt: str) -> str:
        return prompt.split("[")[1].split(")")[0]

    play.match(player, 1, first_legal, said.append)
    assert said[-1].strip().endswith(("you win", "the agent wins", "a draw"))


def test_a_level_is_looked_up_at_the_daemon_and_played(player: move.Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    class Levels:
        def __enter__(self) -> Levels:
            return self

        def __exit__(self, *_: object) -> None: ...

        def levels(self, run: str) -> list[Level]:
            assert run == "tic_tac_toe"
            return [Level(300.0, 1, 16, 2.0, measured=False), Level(900.0, 2, 64), Level(1200.0, 2, 128, measured=False)]

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(play, "client_of", lambda _: Levels())
    monkeypatch.setattr(play, "best_weights", lambda client, run: 2)
    monkeypatch.setattr(move, "open_player", lambda _, **how: asked.append(how) or player)
    monkeypatch.setattr(play, "match", lambda agent, *_: asked.append({"temperature": agent.temperature}))
    for weights, level in (("latest", 250.0), ("latest", 1000.0), ("best", None), ("5", None)):
        play.play(load(overrides=['home="/nowhere"', 'run.game="tic_tac_toe"']), None, None, weights, level, 400, True)
    told = [(how["weights"], how["num_simulations"], then["temperature"]) for how, then in zip(asked[::2], asked[1::2], strict=True)]
    assert told == [("1", 16, 2.0), ("2", 64, 0.0), ("2", 400, 0.0), ("5", 400, 0.0)]
    with pytest.raises(ConfigError, match="--level"):
        play.play(load(), None, None, "3", 900.0, 400, True)
