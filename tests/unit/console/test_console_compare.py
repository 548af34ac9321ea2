"""Runs compared in the terminal: the same positions for all networks, and one line for what cannot be compared."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from run_courses import courses

from azq.arena.positions import load as load_positions
from azq.bus.embedded import EmbeddedServer
from azq.config import Config, dump_run, load
from azq.console import compare as comparing
from azq.console import move
from azq.console.compare import compare_runs, comparison_text, comparison_values
from azq.console.move import Agent
from azq.errors import ConfigError, InvalidRequest, NotFound
from azq.games import load as load_game
from azq.host.brokers import BROKER_FOLDER, reading_control
from azq.ledger import Ledger
from azq.samples.diff import diff
from azq.samples.played import ROW
from azq.search.evaluator import UniformEvaluator
from azq.status.compare import compare
from azq.wire.messages import RunRecord

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
def home(tmp_path: Path) -> Path:
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
def test_a_home_at_rest_answers_and_bad_input_is_one_line(home: Path, runs: list[str], by: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        compare_runs(load(None, [f'home="{home}"']), runs, by, [], 0, 64)
    assert not EmbeddedServer("control", home / BROKER_FOLDER / "control").responds(0.5), "it was started for the question alone"
    with pytest.raises(ConfigError, match="--weights names 1 for 2 runs"):
        compare_runs(load(None, [f'home="{home}"']), ["a", "b"], "minutes", ["3"], 0, 64)
