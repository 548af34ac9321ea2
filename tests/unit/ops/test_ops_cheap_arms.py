"""`ops/bench/cheap_arms.py`, `score_arms.py`, `arm_against_arm.py`, `turns.py`: short runs, their tables, and what is named on the way."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from azq.errors import ConfigError, WeightsError

SCRIPTS = Path(__file__).parents[3] / "ops" / "bench"
PLAN = """
game = "tic_tac_toe"
cpu_s = 0.4
at = [0.2, 0.4]
seeds = 2
num_simulations = 4
positions = "graded.jsonl"
{more}
set = ["selfplay.games_in_flight=16", "network.blocks=1", "network.channels=8", "network.kind='mlp'", "learner.batch_size=32",
       "learner.min_window=64", "search.num_simulations=4"]
[[arm]]
name = "first"
[[arm]]
name = "muon"
set = ["learner.muon_rate=4e-3", "search.schedule=[{{samples=200, num_simulations=8}}]"]
{arms}
"""
GRADED = '{"actions": [0, 3], "values": [null, 0, 0, null, 1, 0, 0, 0, 1]}\n{"actions": [], "values": [0, 0, 0, 0, 0, 0, 0, 0, 0]}\n'


@pytest.fixture(scope="module")
def arms() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("cheap_arms")
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.fixture
def plan_file(tmp_path: Path) -> Callable[..., Path]:
    def write(more: str = "", arms: str = "", graded: str = GRADED) -> Path:
        (tmp_path / "graded.jsonl").write_text(graded)
        (tmp_path / "arms.toml").write_text(PLAN.format(more=more, arms=arms))
        return tmp_path / "arms.toml"

    return write


def test_a_game_for_one_is_told_by_its_scores(arms, tmp_path, monkeypatch):
    small = (
        "run.params.max_moves=30",
        "selfplay.games_in_flight=8",
        "network.channels=16",
        "learner.batch_size=32",
        "learner.min_window=64",
    )
    words = ["score_arms.py", str(tmp_path / "out.jsonl"), "--game", "2048", "--at", "0.3", "--games", "4", "--num-simulations", "4"]
    monkeypatch.setattr(sys, "argv", [*words, *(word for one in (*small, "learner.td_lambda=0.9") for word in ("--set", one))])
    importlib.import_module("score_arms").main()
    first, last = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["steps"], last["scored"]["games"]) == (0, 4)
    assert last["steps"] > 0
    assert last["scored"]["score"] > 0


def test_two_arms_play_each_other(arms, tmp_path):
    versus = importlib.import_module("arm_against_arm")
    small = ["selfplay.games_in_flight=16", "network.channels=8", "learner.batch_size=32", "learner.min_window=64"]
    sections = [versus.arm("tic_tac_toe", [*small, f"selfplay.random_opening_plies={plies}"]) for plies in (0, 2)]
    files = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    counts = [versus.trained(each, 0.3, file) for each, file in zip(sections, files, strict=True)]
    assert min(each["steps"] for each in counts) > 0
    found = versus.played(sections, files, 4, 8, 1)
    assert (found["opening_plies"], found["games"], found["wins"] + found["draws"] + found["losses"]) == (1, 4, 4)
    (tmp_path / "graded.jsonl").write_text(GRADED)
    positions = versus.graded(versus.game_of(sections[0]), versus.read(tmp_path / "graded.jsonl"))
    first, second = [versus.lost_by(positions, 8, one, file) for one, file in zip(sections, files, strict=True)]
    lost = versus.against(first, second)
    assert set(lost) == {"search", "policy", "value_error", "errors"}
    assert lost["policy"]["difference"] == pytest.approx(np.mean(second["policy"] - first["policy"]))
    assert lost["policy"]["second"] - lost["policy"]["first"] == pytest.approx(lost["policy"]["difference"])
    assert lost["policy"]["se"] > 0
    (tmp_path / "graded.jsonl").write_text('{"actions": [3, 3], "values": [0, 1]}\n')
    with pytest.raises(ConfigError, match=r"graded\.jsonl line 1: action 3 is illegal after 1 plies"):
        versus.graded(versus.game_of(sections[0]), versus.read(tmp_path / "graded.jsonl"))
    with pytest.raises(ConfigError, match="random_opening_plies"):
        versus.arm("tic_tac_toe", ["selfplay.random_opening_plies=-1"])


def run(arms: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["cheap_arms.py", *map(str, words)])
    return int(arms.main())


def test_a_table_resumes_and_names_the_arm_that_fails(arms, plan_file, tmp_path, monkeypatch, capsys):
    bad = '[[arm]]\nname = "nonsense"\nset = ["learner.muon_rate=\'sgd\'"]\n[[arm]]\nname = "wild"\nset = ["learner.learning_rate=1e6"]'
    path, out = plan_file(arms=bad), tmp_path / "out"
    wild = arms.run_one

    def diverging(plan, sections, positions):
        if sections.learner.learning_rate == 1e6:
            raise WeightsError("training diverged at step 3: the loss is not finite")
        return wild(plan, sections, positions)

    monkeypatch.setattr(arms, "run_one", diverging)
    assert run(arms, monkeypatch, out, "--arms", path, "--seeds", 1) == 0
    shown = capsys.readouterr()
    assert "nonsense seed 1: configuration (arm nonsense" in shown.err
    assert "training diverged" in shown.out
    rows = {line.split(" | ")[0].strip("| "): line for line in shown.out.splitlines()}
    assert "+-inf" in rows["muon"]
    result = json.loads((out / "muon.1.json").read_text())
    first, last = result["rows"]
    assert first["cpu_s"] < last["cpu_s"]
    assert last["games"] > first["games"] > 0
    assert last["steps"] > 0
    before = (out / "first.1.json").stat().st_mtime_ns
    assert run(arms, monkeypatch, out, "--arms", path) == 0  # the other seed, and what is there stays
    assert (out / "first.1.json").stat().st_mtime_ns == before
    assert (out / "first.2.json").exists()
    assert run(arms, monkeypatch, out, "--arms", path, "--table", "--only", "first") == 0
    assert "muon" not in capsys.readouterr().out.splitlines()[-1]
    result["fingerprint"] = "other"
    (out / "muon.1.json").write_text(json.dumps(result))
    assert run(arms, monkeypatch, out, "--arms", path, "--table") == 2
    assert "was made with other settings; remove it" in capsys.readouterr().err


def test_all_arms_may_learn_from_the_same_games(arms, plan_file, tmp_path):
    own = arms.read_plan(plan_file('keep = "games.msgpack"'))
    positions = arms.positions_of(own)
    played = arms.run_one(own, arms.sections_of(own, own.arms[0], 1), positions)[-1]
    taught = arms.read_plan(plan_file('games = "games.msgpack"'))
    rows = [arms.run_one(taught, arms.sections_of(taught, arm, 1), positions) for arm in taught.arms]
    assert {(row["games"], row["samples"]) for each in rows for row in each} == {(played["games"], played["samples"])}
    assert all(each[-1]["steps"] > each[0]["steps"] > 0 == each[-1]["evaluations"] for each in rows)


def test_positions_of_another_game_are_named(arms, plan_file):
    path = plan_file(graded='{"actions": [3, 3], "values": [0, 1]}\n')
    with pytest.raises(ConfigError, match=r"graded.jsonl line 1: action 3 is illegal after 1 plies; .*; the file belongs to another game"):
        arms.positions_of(arms.read_plan(path))


@pytest.mark.parametrize("text", ["cpu_s = 3", "[[arm]]\nname = 'a'", "cpu_s = 1\n[[arm]]\nname = 'a'\n[[arm]]\nname = 'a'", "cpu_s ="])
def test_what_is_no_table_of_arms_is_named(arms, tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"bad.toml"):
        arms.read_plan(tmp_path / "bad.toml")


def test_differences_are_paired_by_seed(arms):
    mean, error, seeds = arms.paired({1: 0.30, 2: 0.40, 3: 0.50}, {1: 0.28, 2: 0.37, 3: 0.49, 4: 9.0})
    assert (mean, seeds) == (pytest.approx(-0.02), 3)
    assert error == pytest.approx(0.01 / math.sqrt(3))
    assert arms.paired({1: 0.3}, {1: 0.2})[1:] == (math.inf, 1)
    assert arms.paired({1: 0.3}, {2: 0.2}) == (0.0, math.inf, 0)


def test_an_arm_is_given_up_once_it_is_surely_worse(arms):
    base = {seed: 0.2 + 0.01 * seed for seed in range(1, 5)}
    worse = {seed: value + 0.02 + 0.001 * seed for seed, value in base.items()}
    assert arms.hopeless(base, worse)
    assert not arms.hopeless({1: base[1], 2: base[2]}, worse), "two seeds are too few"
    assert not arms.hopeless(worse, base)
    assert not arms.hopeless(base, {1: 0.1, 2: 0.3, 3: 0.25, 4: 0.22})


def test_tables_of_the_repository_are_plans_of_sound_arms(arms):
    tables = [path for path in (SCRIPTS / "arms").glob("*.toml") if "cpu_s" in path.read_text()]
    assert {path.name for path in tables} >= {"ingredients.toml", "proxies.toml"}
    for path in tables:
        plan = arms.read_plan(path)
        assert len({arms.fingerprint(plan, arms.sections_of(plan, arm, 1)) for arm in plan.arms}) == len(plan.arms)


def test_critical_positions_of_each_number_of_stones(arms):
    pytest.importorskip("bitbully", reason="the extra `eval` is not there")
    found = importlib.import_module("make_positions").make_by_ply(seed=1, count=32)
    assert [len(one["actions"]) for one in found] == list(range(5, 37))
    assert all(len({value for value in one["values"] if value is not None}) > 1 for one in found)
