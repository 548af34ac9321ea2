"""A foreign cluster's settings: each key has a mapping, and what came of them are settings that azq takes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from azq.cli.app import app
from azq.config import load
from azq.errors import ConfigError
from azq.parts.cluster.arithmetic import read_figures
from azq.parts.cluster.checks import check
from azq.parts.cluster.description import cluster_of, read_cluster
from azq.parts.cluster.foreign import cluster_text, map_key, read_foreign, settings_of

MAXOUT = Path(__file__).parents[4] / "ops" / "clusters" / "cluster_maxout.yaml"


def test_every_key_of_the_published_file_has_a_fate_and_azq_takes_the_settings():
    mappings = read_foreign(MAXOUT)
    assert len(mappings) == 29
    assert all(mapping.settings or mapping.note for mapping in mappings)
    assert not [mapping.key for mapping in mappings if mapping.note == "unknown to azq"]
    settings = settings_of(mappings)
    assert settings.pop("until.steps") == 2000
    config = load(None, [f"{name}={json.dumps(value)}" for name, value in settings.items()])
    assert (config.search.algorithm, config.search.num_simulations, config.search.dirichlet_fraction) == ("puct", 200, 0.25)
    assert (config.network.kind, config.network.channels, config.network.blocks) == ("structured", 256, 4)
    assert (config.run.game, config.network.encoders) == ("beasty_bar", {"queue": 6, "bar": 2, "hand": 2})
    assert config.network.auxiliary == ("advantage", "margin", "hidden")
    assert (config.learner.publish_every_steps, config.arena.every_steps) == (100, 200)
    assert len(config.inference.devices) == 8


def test_the_published_file_becomes_the_cluster_that_is_kept_beside_it():
    made = cluster_of(tomllib.loads(cluster_text(read_foreign(MAXOUT), "cluster_maxout", "cluster_maxout.yaml")), "made")
    kept = read_cluster(MAXOUT.with_name("maxout.toml"))
    assert (made.machines, made.run, made.settings, made.budget) == (kept.machines, kept.run, kept.settings, kept.budget)
    assert made.name == "cluster-maxout"
    assert [str(finding) for finding in check(made, read_figures()[0]) if finding.severity == "fail"] == []
    trained = made.run.sections()
    assert (made.run.game, made.run.until, trained.run.game) == ("beasty_bar", "steps=2000", "beasty_bar")
    assert (trained.search.num_simulations, trained.learner.batch_size, trained.learner.ranks) == (200, 16384, 8)
    network = trained.network
    assert (network.kind, network.channels, network.heads, network.blocks) == ("structured", 256, 8, 4)
    assert network.encoders == {"queue": 6, "bar": 2, "hand": 2}


ENOUGH = {"training.total_iterations": 10}


@pytest.mark.parametrize(
    ("keys", "game", "said"),
    [
        (ENOUGH, "", "names no game"),
        ({}, "othello", "does not say when the run ends"),
        ({**ENOUGH, "inference.gpus_per_server": 99}, "othello", "catalogue has 99 GPUs"),
        ({**ENOUGH, "selfplay.workers_per_node": 999}, "othello", "catalogue has more than 999 cores"),
    ],
)
def test_what_a_cluster_needs_and_the_file_does_not_say_is_asked_for(keys, game, said):
    with pytest.raises(ConfigError, match=said):
        cluster_text([map_key(key, value) for key, value in keys.items()], "c", "c.yaml", game)


def test_a_short_file_becomes_a_cluster_too():
    made = cluster_of(tomllib.loads(cluster_text([map_key(key, value) for key, value in ENOUGH.items()], "c", "c.yaml", "othello")), "made")
    assert (made.run.game, made.run.preset, made.run.until, made.settings) == ("othello", "gpu", "steps=10", {})
    assert {name: group.count for name, group in made.of_role("inference").items()} == {"inference": 1}


def test_the_file_is_written_once_and_again_and_not_over_what_somebody_changed(tmp_path):
    out = tmp_path / "mine.toml"
    words = ["cluster", "translate", str(MAXOUT), "--out", str(out)]
    answers = [CliRunner().invoke(app, words) for _ in range(2)]
    assert [answer.exit_code for answer in answers] == [0, 0]
    assert f"azq cluster check {out}" in answers[0].stdout
    out.write_text(out.read_text().replace("count = 4", "count = 5"))
    assert "says something else" in str(CliRunner().invoke(app, words).exception)
    assert "count = 5" in out.read_text()
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0
    assert "count = 4" in out.read_text()


def test_a_key_that_is_unknown_is_left_out_and_said():
    assert str(map_key("training.magic", 3)) == "training.magic = 3 -> left out (unknown to azq)"
    assert str(map_key("training.batch_size", 64)) == "training.batch_size = 64 -> learner.batch_size=64"


@pytest.mark.parametrize(("text", "said"), [("a: [", "cannot be read as YAML"), ("- 1", "holds no sections")])
def test_a_file_that_is_none_is_refused(tmp_path, text, said):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_foreign(path)


def test_a_value_of_the_wrong_kind_is_named():
    with pytest.raises(ConfigError, match=r"mcts.batch_size: None is no number"):
        map_key("mcts.batch_size", None)
