"""Every preset, with every variant, is a sound run."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest

from azq.config import InferenceConfig, load, merge, parse_run
from azq.errors import ConfigError
from azq.presets import host_preset, preset

FILES = [entry.name for entry in importlib.resources.files("azq.presets").iterdir() if entry.name.endswith(".toml")]
BOXES = sorted(name.removesuffix(".toml") for name in FILES if name.startswith("box-"))
NAMES = sorted(name.removesuffix(".toml") for name in FILES if not name.startswith(("python", "box-")))


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


@pytest.mark.parametrize("game", ["mine.py:Mine", "openspiel:breakthrough"])
def test_a_game_of_ones_own_has_a_network_for_boards(game: str) -> None:
    plain, board = (parse_run(preset(game, variant), game) for variant in ("", "board"))
    assert (plain.network.kind, board.network.kind, board.run.game) == ("mlp", "resnet", game)
    assert board.search == plain.search
    with pytest.raises(ConfigError, match="it has: board, score, box-2gpu, box-8gpu"):
        preset(game, "gpu")


def test_variants_are_named() -> None:
    with pytest.raises(ConfigError, match="it has: gpu, sprint, box-2gpu, box-8gpu"):
        preset("connect_four", "tpu")
    with pytest.raises(ConfigError, match="no preset ''"):
        preset("connect_four", "gpu,")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("box", BOXES)
def test_a_machine_stands_over_any_games_preset_for_a_gpu(name: str, box: str) -> None:
    game, _, variant = name.partition("-")
    assert preset(game, box) == preset(game, "gpu")
    assert preset(game, f"{variant},{box}" if variant else box) == preset(game, variant or "gpu")
    assert preset("mine.py:Mine", box) == preset("mine.py:Mine")
    assert host_preset(game, variant) == {}


@pytest.mark.parametrize(
    ("box", "devices", "shards"), [("box-2gpu", ("cuda:1", "cuda:0"), 1), ("box-8gpu", tuple(f"cuda:{n}" for n in range(1, 8)), 2)]
)
def test_the_hosts_part_lies_below_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: str, devices: tuple[str, ...], shards: int
) -> None:
    monkeypatch.chdir(tmp_path)
    base = preset("connect_four", box) | host_preset("connect_four", box)
    config = load(base=base)
    assert (config.inference.devices, config.broker.data_shards) == (devices, shards)
    (tmp_path / "azq.toml").write_text('[inference]\ndevices = ["cuda:3"]\nmax_batch = 64\n')
    assert load(base=base).inference.devices == ("cuda:3",)
    monkeypatch.setenv("AZQ_INFERENCE__DEVICES", '["cuda:4"]')
    assert load(base=base).inference.devices == ("cuda:4",)
    assert load(None, ['inference.devices=["cuda:5"]'], base).inference.devices == ("cuda:5",)


@pytest.mark.parametrize(("name", "kind"), [("connect_four", "mlp"), ("beasty_bar", "resnet")])
def test_a_preset_gives_way_to_another_kind_of_network(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = preset(name, "structured-small" if name == "beasty_bar" else "")
    network = load(overrides=[f"network.kind={kind}"], base=base).network
    assert (network.kind, network.parity, network.encoders) == (kind, False, {})
    assert (network.blocks, network.channels) == (base["network"]["blocks"], base["network"]["channels"])  # what any kind has stays
    assert parse_run(merge(base, {"network": {"kind": kind}}), "a request").network == network
    monkeypatch.setenv("AZQ_NETWORK__KIND", kind)
    assert load(base=base).network == network


def test_what_another_kind_has_is_still_refused_where_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="parity is of kind = 'resnet'"):
        load(overrides=["network.kind=mlp", "network.parity=true"], base=preset("connect_four"))
