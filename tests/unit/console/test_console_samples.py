"""Recorded games of runs, and runs beside each other: figures and differences, as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from replay_games import play_game
from run_courses import courses
from typer.testing import CliRunner

from azq import games
from azq.bus.embedded import EmbeddedServer
from azq.cli.app import app
from azq.config import Config, RunConfig, RunSections, dump_run, load
from azq.console import compare as comparing
from azq.console import move
from azq.console.compare import compare_runs, comparison_text, comparison_values
from azq.console.move import Agent
from azq.errors import AzqError, ConfigError, InvalidRequest, NotFound
from azq.games import load as load_game
from azq.host.brokers import BROKER_FOLDER, reading_control
from azq.host.rundir import RunDir
from azq.ledger import Ledger
from azq.ratings.positions import load as load_positions
from azq.replay.segments import LogEntry, SegmentLog
from azq.samples.diff import diff
from azq.samples.played import ROW
from azq.search.evaluator import UniformEvaluator
from azq.status.compare import compare
from azq.wire.codec import encode
from azq.wire.messages import BROWSER_PREFIX, RunRecord


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AZQ_HOME", str(tmp_path))
    return tmp_path


def plant(home: Path, run: str, game: str = "tic_tac_toe", count: int = 60) -> None:
    """A run's folder with random games, every second of them a browser's."""
    folder, rules = RunDir(home, run), games.load(game)
    folder.create(RunSections(run=RunConfig(game=game)))
    log = SegmentLog(folder.path / "segments", game)
    for uid in range(1, count + 1):
        event = play_game(rules, uid)
        event = msgspec.structs.replace(event, worker=f"{BROWSER_PREFIX}ada") if uid % 2 else event
        log.append([LogEntry(uid, 1, encode(event))])
    log.close()


def asked(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["samples", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def test_stats_for_people_and_for_machines(home: Path) -> None:
    plant(home, "first")
    groups = asked("stats", "first", "--by", "source", "--json")
    assert {name: stats["games"] for name, stats in groups.items()} == {"browser": 30, "server": 30}
    assert asked("stats", "first", "--games", "7", "--json")["all"]["games"] == 7
    text = asked("stats", "first", "--by", "source")
    assert "browser" in text.splitlines()[0]
    assert "asymmetry of first moves" in text


def test_diff_of_sources_and_of_runs(home: Path) -> None:
    plant(home, "first")
    plant(home, "second", count=40)
    found = asked("diff", "first", "--json")
    assert (found["groups"], found["diff"]["games"], found["diff"]["left_out"]) == (["browser", "server"], [30, 30], [0, 0])
    assert "differs" not in {each["verdict"] for each in found["diff"]["figures"]}
    text = asked("diff", "first", "second", "--opening-plies", "1")
    assert "first 60 games (0 left out), second 40 games" in text
    assert "noticed" in text.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("diff", "first", "first"), "does not differ from itself"),
        (("stats", "third"), "no run 'third' under"),
        (("stats", "empty"), "no recorded games in"),
        (("stats", "first", "--by", "host"), "games are grouped by source, worker, version, not by 'host'"),
        (("diff", "first", "other"), "name runs of one game"),
        (("diff", "first", "--by", "version"), r"by version first has 1 \(1\): --groups A,B names two"),
        (("diff", "first", "--groups", "server,tab"), r"by source first has 2 \(browser, server\)"),
    ],
)
def test_what_cannot_be_told_is_one_line_with_the_remedy(home: Path, arguments: tuple[str, ...], told: str) -> None:
    plant(home, "first", count=4)
    plant(home, "other", "connect_four", count=2)
    RunDir(home, "empty").create(RunSections())
    with pytest.raises(AzqError, match=told) as raised:
        CliRunner().invoke(app, ["samples", *arguments], catch_exceptions=False)
    assert "\n" not in str(raised.value)


NO_GAMES = np.zeros(0, ROW)


def test_the_text_has_a_column_a_run() -> None:
    compared = compare(courses({"name": "slow"}, {"name": "fast", "speed": 2.0, "num_simulations": 32}), "steps")
    lines = "\n".join(comparison_text(compared, [], {"fast": diff(NO_GAMES, NO_GAMES, match_versions=False)}))
    assert "slow     fast\n" in lines
    assert "graded errors at 600" in lines
    assert "slow 0 games (0 left out), fast 0 games (0 left out)" in lines
    assert "search.num_simulations" in lines
    assert "fast v5, errors: +0.0000 (+0.0000 to +0.0000): 0.0500 against 0.0500 of slow v5, 200 positions" in lines
    assert comparison_values(compared, [], {})["paired"] == []


def test_networks_meet_the_same_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    game, chosen = load_game("connect_four"), load_positions("connect_four")[:12]

    def open_player(config: Config, *, weights: str, num_simulations: int, **_: object) -> Agent:
        return Agent(game, UniformEvaluator(7), int(weights), config.search, num_simulations)

    monkeypatch.setattr(move, "open_player", open_player)
    first, other = (comparing._marked(load(), "any", str(version), count, "connect_four", chosen) for version, count in ((3, 16), (4, 200)))
    found = comparing._paired("other", first, other)
    assert (found["players"], found["positions"]) == (["weights:3", "weights:4"], 12)
    assert found["loss"]["low"] <= found["loss"]["difference"] <= found["loss"]["high"]
    assert found["errors"]["values"][0] == pytest.approx(first[1]["errors"].mean(), abs=1e-6)
    assert found["policy_regret"]["difference"] == 0.0  # both networks know nothing
    assert found["search_regret"]["difference"] < 0.0  # and more simulations lose less
    assert "value_error" in found


@pytest.fixture
def home_at_rest(tmp_path: Path) -> Path:
    """A folder where `azq up` worked once, and nothing runs now."""
    server = EmbeddedServer("control", tmp_path / BROKER_FOLDER / "control")
    server.start()
    config = load(None, [f'home="{tmp_path}"'])
    with reading_control(config) as client:  # of the server that runs
        for name, game in (("a", "connect_four"), ("b", "connect_four"), ("c", "othello")):
            sections = config.run_sections().model_copy(update={"run": config.run.model_copy(update={"game": game})})
            Ledger(client).create_run(RunRecord(name, msgspec.json.encode(dump_run(sections)), {}, str(tmp_path / name), 1))
    server.stop()
    return tmp_path


@pytest.mark.parametrize(
    ("runs", "by", "error", "said"),
    [
        (["a", "c"], "minutes", InvalidRequest, "different games"),
        (["a"], "minutes", InvalidRequest, "two to 8 runs"),
        (["a", "b"], "minutes", NotFound, "nothing was recorded of run a"),
        (["a", "z"], "minutes", NotFound, "z"),
        (["a", "b"], "days", ConfigError, "--by 'days' is not one of"),
    ],
)
def test_a_home_at_rest_answers_and_bad_input_is_one_line(
    home_at_rest: Path, runs: list[str], by: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        compare_runs(load(None, [f'home="{home_at_rest}"']), runs, by, [], 0, 64)
    assert not EmbeddedServer("control", home_at_rest / BROKER_FOLDER / "control").responds(0.5), "it was started for the question alone"
    with pytest.raises(ConfigError, match="--weights names 1 for 2 runs"):
        compare_runs(load(None, [f'home="{home_at_rest}"']), ["a", "b"], "minutes", ["3"], 0, 64)
