"""Data never name code: what weights, a run's folder or a daemon call a game is imported only where a person or the host allows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from azq import games
from azq.cli.app import app
from azq.config import Config, NetworkConfig, RunConfig, RunSections, load
from azq.console import remote
from azq.console.up import UpRequest, read_start, requested_game
from azq.errors import ConfigError
from azq.host.game_files import LIST, list_game
from azq.host.restore import restore_run
from azq.host.rundir import RunDir
from azq.nets import WeightsMeta, build, to_bytes

NIM = Path(__file__).parents[2] / "games" / "nim.py"
NETWORK = NetworkConfig(kind="mlp", blocks=1, channels=4)


class Sent:
    """A file of weights and a run's folder that somebody sent, and what they call their game: a file that leaves a mark when it is run."""

    def __init__(self, folder: Path) -> None:
        self.home, self.mark, self.weights = folder / "runs", folder / "mark", folder / "sent.safetensors"
        run = RunDir(self.home, "sent")
        self.file = run.path / "evil.py"
        self.game = f"{self.file}:Nim"
        run.create(RunSections(run=RunConfig(game=self.game)))
        (run.path / "host.toml").write_text(f'[worker]\ngame_files = ["{self.file}"]\n[broker]\ncontrol_url = "redis://evil"\n')
        (run.path / LIST).write_text(f"{self.file}\n")
        (run.path / "segments" / "000001.seg").touch()
        self.file.write_text(f"{NIM.read_text('utf-8')}\n__import__('pathlib').Path({str(self.mark)!r}).touch()\n", "utf-8")
        module = build(NETWORK, games.load("tic_tac_toe"), seed=1)
        self.weights.write_bytes(to_bytes(module, WeightsMeta(self.game, 7, 40, {}, NETWORK.model_dump(mode="json"))))
        self.client: Any = SimpleNamespace(read_weights=lambda run, number: self.weights.read_bytes())


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sent:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AZQ_HOME", str(tmp_path / "runs"))
    return Sent(tmp_path)


BY_WEIGHTS = (
    ("play", "--weights", "W"),
    ("move", "--weights", "W"),
    ("match", "file:W", "random"),
    ("gtp", "--weights", "W"),
    ("gtp", "--player", "random", "--weights", "W"),
    ("grade", "--player", "file:W"),
    ("exploitability", "--player", "file:W"),
)
BY_RUN = (
    ("match", "--run", "sent", "random", "uct:1"),
    ("move", "--run", "sent", "--weights", "W"),
    ("samples", "stats", "sent"),
    ("samples", "diff", "sent"),
    ("why", "sent"),
    ("games", "export", "sent"),
    ("replay", "--run", "sent", "--game", "1"),
)


def invoke(sent: Sent, words: Sequence[str]) -> BaseException | None:
    return CliRunner().invoke(app, [word.replace("W", str(sent.weights)) for word in words], input="q\n").exception


@pytest.mark.parametrize("words", [*BY_WEIGHTS, *BY_RUN], ids=" ".join)
def test_no_command_imports_what_data_call_their_game(sent: Sent, words: Sequence[str]) -> None:
    refused = invoke(sent, words)
    assert not sent.mark.exists()
    assert isinstance(refused, ConfigError), refused
    source = sent.weights if words in BY_WEIGHTS else RunDir(sent.home, "sent").settings
    assert re.match(rf"{source} names game {sent.game}, .* worker\.game_files, or it with --game FILE:CLASS$", str(refused))


def test_nor_do_up_restore_and_what_a_daemon_sends(sent: Sent) -> None:
    for asked in (UpRequest(origin=str(sent.weights), run="x"), UpRequest(run="sent")):
        with pytest.raises(ConfigError, match="does not allow"):
            read_start(asked)
    with pytest.raises(ConfigError, match=r"run\.toml names game"):
        restore_run(Config(home=sent.home), sent.home / "sent", "")
    with pytest.raises(ConfigError, match="version 7 of r names game"):
        remote.export_weights(Config(), sent.client, "r", "7", "onnx", None)
    assert not sent.mark.exists()


def test_a_sent_run_sets_nothing_of_the_host(sent: Sent) -> None:
    settings = RunDir(sent.home, "sent").settings
    settings.write_text(f'{settings.read_text()}\n[worker]\ngame_files = ["{sent.file}"]\n')
    with pytest.raises(ConfigError, match="does not allow"):
        read_start(UpRequest(run="sent"))
    assert not sent.mark.exists()
    start = read_start(UpRequest(game=sent.game, run="sent"))
    assert sent.mark.exists()
    assert (start.config.broker.control_url, start.host) == ("", {})


@pytest.mark.parametrize("words", BY_RUN[2:], ids=" ".join)
def test_what_a_person_named_in_this_home_goes_on_without_more_settings(sent: Sent, words: Sequence[str]) -> None:
    list_game(sent.home, requested_game(UpRequest(game=sent.game)))
    assert not isinstance(invoke(sent, words), ConfigError)
    assert sent.mark.exists()


@pytest.mark.parametrize("way", ["--game", "--set", "settings", "game_files"])
def test_a_person_names_a_game_file_on_his_command_line_or_in_his_settings(sent: Sent, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"--game": ["--game", sent.game], "--set": ["--set", f'run.game="{sent.game}"']}.get(way, [])
    if not own:
        named = f'[run]\ngame = "{sent.game}"' if way == "settings" else f'[worker]\ngame_files = ["{sent.file.parent}"]'
        Path("azq.toml").write_text(named)
    assert not isinstance(invoke(sent, ["match", "--run", "sent", "--games", "1", "random", "random", *own]), ConfigError)
    assert sent.mark.exists()


def test_the_list_of_a_home_has_each_file_once_and_games_by_name_not_at_all(tmp_path: Path) -> None:
    for name in ("tic_tac_toe", f"{tmp_path}/a.py:A", f"{tmp_path}/a.py:B", f"{tmp_path}/b.py:B"):
        list_game(tmp_path, name)
    assert (tmp_path / LIST).read_text().splitlines() == [f"{tmp_path}/a.py", f"{tmp_path}/b.py"]
    assert (tmp_path / LIST).stat().st_mode & 0o777 == 0o600
    (tmp_path / LIST).write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="delete it"):
        list_game(tmp_path, f"{tmp_path}/a.py:A")
    assert load().worker.game_files == ()
