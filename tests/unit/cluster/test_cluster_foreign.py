"""A foreign cluster's settings: each key has a fate, and what came of them are settings that azq takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from azq.cluster.foreign import fate_of, read_foreign, settings_of
from azq.config import load
from azq.errors import ConfigError

MAXOUT = Path(__file__).parents[3] / "ops" / "clusters" / "cluster_maxout.yaml"


def test_every_key_of_the_published_file_has_a_fate_and_azq_takes_the_settings():
    fates = read_foreign(MAXOUT)
    assert len(fates) == 29
    assert all(fate.settings or fate.note for fate in fates)
    assert not [fate.key for fate in fates if fate.note == "unknown to azq"]
    settings = settings_of(fates)
    assert settings.pop("until.steps") == 2000
    config = load(None, [f"{name}={json.dumps(value)}" for name, value in settings.items()])
    assert (config.search.algorithm, config.search.num_simulations, config.search.dirichlet_fraction) == ("puct", 200, 0.25)
    assert (config.network.kind, config.network.channels, config.network.blocks) == ("structured", 256, 4)
    assert (config.run.game, config.network.encoders) == ("beasty_bar", {"queue": 6, "bar": 2, "hand": 2})
    assert config.network.auxiliary == ("advantage", "margin", "hidden")
    assert (config.learner.publish_every_steps, config.arena.every_steps) == (100, 200)
    assert len(config.inference.devices) == 8


def test_a_key_that_is_unknown_is_left_out_and_said():
    assert str(fate_of("training.magic", 3)) == "training.magic = 3 -> left out (unknown to azq)"
    assert str(fate_of("training.batch_size", 64)) == "training.batch_size = 64 -> learner.batch_size=64"


@pytest.mark.parametrize(("text", "said"), [("a: [", "cannot be read as YAML"), ("- 1", "holds no sections")])
def test_a_file_that_is_none_is_refused(tmp_path, text, said):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_foreign(path)


def test_a_value_of_the_wrong_kind_is_named():
    with pytest.raises(ConfigError, match=r"mcts.batch_size: None is no number"):
        fate_of("mcts.batch_size", None)
