"""Weights that come with azq: what a card says is so, they play, and what is damaged or unknown is refused by name."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from azq import games, pretrained
from azq.arena.match import whole_groups
from azq.arena.player import Ground
from azq.arena.players import make_player
from azq.config import SearchConfig, load
from azq.console.demo import levels_of
from azq.console.move import open_player
from azq.console.play import Seating, game_named, match_players, two_named
from azq.console.up import read_origin
from azq.errors import ConfigError, NotFound, WeightsError
from azq.nets import from_bytes

MOST_BYTES = 3_000_000  # of all of them together
GAMES = 12
NAMES = pretrained.names()


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one game's files, in place of the shipped one."""
    for name in ("tic_tac_toe.toml", "tic_tac_toe.safetensors"):
        shutil.copy(pretrained.FOLDER / name, tmp_path)
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    return tmp_path


def home(tmp_path: Path, *overrides: str) -> list[str]:
    return [f'home="{tmp_path}/runs"', *overrides]


def test_all_of_them_are_small() -> None:
    assert sum(path.stat().st_size for path in pretrained.FOLDER.iterdir() if path.is_file()) <= MOST_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_what_the_file_is(name: str) -> None:
    card, data = pretrained.card(name), pretrained.verified(name).read_bytes()
    state, meta = from_bytes(data)
    assert (card.sha256, card.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert (card.game, card.version, card.params) == (meta.game, meta.version, meta.params)
    assert {str(tensor.dtype) for tensor in state.values() if tensor.is_floating_point()} == {"torch.float32"}
    assert card.ledger["balanced"] is True
    assert card.ledger["finished"] == card.training.games > 0
    assert card.training.commit
    assert card.matches, "a card tells how well its network was measured to play"
    assert all(match.wins + match.draws + match.losses == match.games for match in card.matches)
    assert card.rounding < 0.05
    if card.levels:
        assert [(level.num_simulations, level.temperature) for level in card.levels] == [
            (level.num_simulations, level.temperature) for level in levels_of(card)[: len(card.levels)]
        ]
        assert card.levels[0].elo == 0
    SearchConfig.model_validate(card.search)


@pytest.mark.parametrize("name", NAMES)
def test_each_plays_by_the_rules_and_beats_random(name: str) -> None:
    rules = games.load(pretrained.card(name).game, **pretrained.card(name).params)
    if rules.num_players() == 1:
        pytest.skip("nobody to beat")
    found = match_players(load(), Seating(name, None, "latest", 16), f"azq:{name}", "random", GAMES, 0)
    assert found["games"] == whole_groups(GAMES, rules.num_players())
    assert found["first"] == f"azq:{name}"
    assert found["share"] >= 1.4 / rules.num_players()  # two players: 70 %


def test_a_file_that_is_not_the_cards_is_refused_by_name(copied: Path) -> None:
    file = copied / "tic_tac_toe.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(WeightsError, match=r"azq:tic_tac_toe in .* are damaged: their hash is .*; install azq again"):
        pretrained.verified("tic_tac_toe")
    file.unlink()
    with pytest.raises(WeightsError, match="azq:tic_tac_toe cannot be read"):
        pretrained.verified("tic_tac_toe")


def test_a_name_without_weights_is_answered_with_those_there_are(copied: Path) -> None:
    with pytest.raises(NotFound, match=r"no weights of 'chess', only of tic_tac_toe; train some with `azq up --game chess`"):
        pretrained.card("chess")


@pytest.mark.parametrize(
    ("text", "name"), [("azq:hex", "hex"), ("azq:40", None), ("azq:2048", "2048"), ("hex", None), ("weights:3", None), ("azq:", "")]
)
def test_names_are_told_from_versions_of_a_run_that_is_called_azq(text: str, name: str | None) -> None:
    assert pretrained.named(text) == name


def test_without_a_run_the_newest_weights_are_those_that_come_with_azq(tmp_path: Path) -> None:
    config = load(overrides=home(tmp_path))
    agent = open_player(config, game="tic_tac_toe", run=None, weights="latest", num_simulations=8)
    with closing(agent.evaluator):
        assert (agent.game.name, agent.source) == ("tic_tac_toe", " of azq:tic_tac_toe")
        assert agent.weight_version == pretrained.card("tic_tac_toe").version
        (answer,) = agent.moves([[0, 3, 1, 4]])
        assert answer["action"] == 2  # which wins
    with pytest.raises(NotFound, match="'mine'"):
        open_player(config, game="tic_tac_toe", run="mine", weights="latest", num_simulations=8)


def test_they_are_not_put_in_place_of_a_game_of_other_parameters(copied: Path, tmp_path: Path) -> None:
    config = load(overrides=home(tmp_path, 'run.params={"size"=5}'))
    with pytest.raises(NotFound, match="no weights"):
        open_player(config, game="tic_tac_toe", run=None, weights="latest", num_simulations=8)


def test_weights_of_another_game_are_refused() -> None:
    with pytest.raises(ConfigError, match="azq:tic_tac_toe play tic_tac_toe, not othello"):
        open_player(load(), game="othello", run=None, weights="azq:tic_tac_toe", num_simulations=8)


def test_a_run_may_begin_with_them() -> None:
    origin = read_origin(load(), "azq:tic_tac_toe")
    assert origin.settings()["run"]["game"] == "tic_tac_toe"
    assert origin.path == pretrained.FOLDER / "tic_tac_toe.safetensors"


def test_a_match_names_its_players_and_so_its_game() -> None:
    assert two_named(["azq:hex", "random"], "", "") == two_named((), "azq:hex", "random") == ("azq:hex", "random")
    assert game_named(load(), None, None, "random", "azq:hex") == "hex"
    assert game_named(load(), None, None, "random", f"file:{pretrained.verified('gomoku')}") == "gomoku"
    assert game_named(load(), None, None, "latest", "random", f"{pretrained.verified('hex')},x") == "hex"
    assert game_named(load(), "othello", None, "random") == "othello"
    for players in ([], ["random"], ["random"] * 3):
        with pytest.raises(ConfigError, match=f"{len(players)} were named"):
            two_named(players, "", "")
    with pytest.raises(ConfigError, match="--game"):
        game_named(load(), None, None, "random", "latest")
    with pytest.raises(WeightsError, match="nowhere"):
        game_named(load(), None, None, "random", "file:nowhere.safetensors")


def test_who_has_another_evaluator_is_not_taken_for_them() -> None:
    game = games.load("tic_tac_toe")
    with pytest.raises(ConfigError, match="azq:tic_tac_toe does not play here"):
        make_player("azq:tic_tac_toe", Ground(game, None, SearchConfig(), 8))
