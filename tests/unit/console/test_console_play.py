"""`azq grade`, `azq match`, and what `azq move` says of dice and outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from azq import games, pretrained
from azq.arena import analyse
from azq.config import load, parse_run
from azq.console import play
from azq.errors import ConfigError, NotFound
from azq.host.rundir import RunDir
from azq.notation.units import unit
from azq.search.evaluator import UniformEvaluator
from azq.wire.messages import MatchResult, MatchSpec

GAME = games.load("tic_tac_toe")


def request(game: str, **more: Any) -> play.Seating:
    return play.Seating(game, None, "latest", 16, slots=16, **more)


def test_a_named_run_names_its_game(tmp_path: Path) -> None:
    config = load(overrides=[f'home="{tmp_path}"'])
    RunDir(tmp_path, "mine").create(parse_run({"run": {"game": "hex"}}, "test"))
    assert play.game_named(config, None, "mine", "latest") == "hex"
    assert play.game_named(config, "othello", "mine", "latest") == "othello"
    with pytest.raises(NotFound, match="other"):
        play.game_named(config, None, "other", "azq:hex")


def test_files_of_weights_play_each_other_and_those_that_come_with_azq(tmp_path: Path) -> None:
    config, copy = load(overrides=[f'home="{tmp_path}"']), tmp_path / "copy.safetensors"
    copy.write_bytes(pretrained.verified("tic_tac_toe").read_bytes())
    for other in (f"file:{pretrained.verified('tic_tac_toe')}", "azq:tic_tac_toe"):
        told = play.match_players(config, request("tic_tac_toe"), f"file:{copy}", other, 4, 1)
        assert (told["first"], told["second"]) == (f"file:{copy}", other)
        assert told["wins"] == told["losses"], "the same network from each seat of each opening"


def test_outcomes_are_told_by_name_where_game_and_network_have_them() -> None:
    class MemberReport:
        def __init__(self, game: games.Game, name: str) -> None:
            self.name = name

        def outcome_combination(self) -> tuple[Any, float]:
            return np.ones(5, np.float32), 0.0

    class Knows(UniformEvaluator):
        def outcomes(self, packed: Any) -> Any:
            return np.tile(np.array([0.7, 0.25, 0.0, 0.1, 0.0], np.float32), (len(packed), 1))

    state = GAME.new_initial_state()
    backgammon: Any = MemberReport(GAME, "backgammon")
    (row,) = analyse.outcomes_of(backgammon, Knows(9), [state]) or [{}]
    assert row["win"] == pytest.approx(0.7)
    assert row["lose_gammon"] == pytest.approx(0.1)
    assert analyse.outcomes_of(backgammon, UniformEvaluator(9), [state]) is None
    assert analyse.outcomes_of(GAME, Knows(9), [state]) is None


def test_a_match_is_told_with_its_interval() -> None:
    result = play.match_players(load(), request("tic_tac_toe"), "uct:20", "random", 59, 1)
    assert result["games"] == 60
    assert result["points"] > result["points_95"] > 0
    assert "uct:20 - random" in play.match_text(result)
    three = MatchResult(MatchSpec("a", "b", 3, 1, 0, 0), "a", "b", 2, 0, 1, 0, seats=3, share=2 / 3, points=0.5, points_se=0.1)
    text = play.match_text(play.match_figures(three, unit(GAME)))
    assert "a - 2 x b" in text
    assert "33.3% between equals" in text


@pytest.mark.parametrize(("games_", "plies"), [(0, 0), (2, -1)])
def test_a_match_of_nothing_is_refused(games_: int, plies: int) -> None:
    with pytest.raises(ConfigError, match="--games"):
        play.match_players(load(), request("tic_tac_toe"), "random", "random", games_, plies)


def test_networks_that_are_not_there_are_named(tmp_path: Path) -> None:
    config = load(overrides=[f'home="{tmp_path}"'])
    with pytest.raises(NotFound, match="version 7"):
        play.match_players(config, request("tic_tac_toe"), "weights:7", "random", 2, 0)
    with pytest.raises(ConfigError, match="num-simulations"):
        play.match_players(config, play.Seating("tic_tac_toe", None, "latest", 0), "random", "random", 2, 0)


def test_rules_come_from_the_flags_where_no_network_plays() -> None:
    config = load(overrides=["run.params.size=7"])
    with play.seated(config, request("hex"), ["random", "uct:5"]) as (game, seats):
        assert game.params["size"] == 7
        assert [player.name for player in seats] == ["random", "uct:5"]
