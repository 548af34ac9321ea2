"""Every preset, with every variant, is a sound run."""

from __future__ import annotations

import importlib.resources

import pytest

from azq.config import InferenceConfig, parse_run
from azq.errors import ConfigError
from azq.presets import preset

FILES = [entry.name for entry in importlib.resources.files("azq.presets").iterdir() if entry.name.endswith(".toml")]
NAMES = sorted(name.removesuffix(".toml") for name in FILES if name != "python.toml")


@pytest.mark.parametrize("name", NAMES)
def test_presets_are_sound(name: str) -> None:
    game, _, variant = name.partition("-")
    assert parse_run(preset(game, variant), name).run.game == game


@pytest.mark.parametrize("name", NAMES)
def test_no_request_of_a_preset_is_larger_than_an_inference_worker_takes(name: str) -> None:
    game, _, variant = name.partition("-")
    sections = parse_run(preset(game, variant), name)
    games = -(-sections.selfplay.games_in_flight // sections.selfplay.groups)
    assert games * sections.search.leaves_per_step <= InferenceConfig().max_batch


def test_variants_are_named() -> None:
    with pytest.raises(ConfigError, match="gpu, sprint"):
        preset("connect_four", "tpu")
