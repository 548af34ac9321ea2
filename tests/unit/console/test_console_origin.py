"""Runs that begin with other weights: what fits is taken, what does not is fresh, and what nobody means is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from learner_doubles import DictStore

from azq import games
from azq.bus.memory import MemoryBus
from azq.config import Config, InferenceConfig, NetworkConfig
from azq.console import up
from azq.console.origin import publish_first, read_origin
from azq.console.remote import average_weights
from azq.console.session import Start
from azq.errors import ConfigError, NotFound, WeightsError
from azq.host.rundir import RunDir
from azq.inference.ask.local import LocalEvaluator
from azq.ledger.memory import MemoryLedger
from azq.ledger.records import record_of
from azq.nets import WeightsMeta, build, from_bytes, restore, to_bytes
from azq.status.observe import read_weights

RESNET = NetworkConfig(kind="resnet", blocks=2, channels=16)


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def written(path: Path, name: str, network: NetworkConfig, version: int = 7, seed: int = 5, **params: Any) -> dict[str, torch.Tensor]:
    """A weights file of these; its tensors."""
    module = build(network, games.load(name, **params), seed=seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel() + seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_bytes(module, WeightsMeta(name, version, 40, params, network.model_dump(mode="json"))))
    return dict(module.state_dict())


def read(**given: Any) -> Start:
    return up.read_start(up.UpRequest(**given))


def test_a_new_run_takes_over_game_network_and_every_tensor(tmp_path: Path) -> None:
    source = written(tmp_path / "w.safetensors", "gomoku", RESNET, size=9)
    start = read(origin="w.safetensors", run="again")
    state, meta = from_bytes(start.weights)
    assert (meta.game, meta.version, meta.step, meta.params["size"]) == ("gomoku", 1, 0, 9)
    assert start.config.network == RESNET
    assert all(torch.equal(state[name], tensor) for name, tensor in source.items())


def test_on_another_board_the_trunk_is_taken_and_heads_begin_anew(tmp_path: Path) -> None:
    large = NetworkConfig(kind="resnet", blocks=4, channels=64)
    source = written(tmp_path / "w.safetensors", "gomoku", large, size=9)
    start = read(origin="w.safetensors", run="wider", overrides=["run.params.size=11"], freeze="trunk")
    state, meta = from_bytes(start.weights)
    assert meta.params["size"] == 11
    assert start.config.learner.freeze == "trunk"
    taken = {name for name, tensor in source.items() if state[name].shape == tensor.shape and torch.equal(state[name], tensor)}
    assert {name for name in source if name.startswith(("stem", "blocks"))} <= taken
    assert not state["policy.weight"].any()


def test_with_global_heads_all_of_it_fits_another_board(tmp_path: Path) -> None:
    source = written(tmp_path / "w.safetensors", "gomoku", RESNET.model_copy(update={"global_heads": True}), size=9)
    start = read(origin="w.safetensors", run="wider", overrides=["run.params.size=15"])
    state, meta = from_bytes(start.weights)
    assert (meta.params["size"], start.config.network.global_heads) == (15, True)
    assert state.keys() == source.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in source.items())
    rules, module = games.load("gomoku", size=15), restore(start.weights, games.load("gomoku", size=15))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.1)  # of what `written` makes, which no float16 holds
    evaluator = LocalEvaluator.from_bytes(rules, to_bytes(module, meta), InferenceConfig(device="cpu", threads=1))
    try:
        found = evaluator.result(evaluator.submit(rules.new_initial_state().packed_observation()[None]), timeout_s=60)
    finally:
        evaluator.close()
    assert found is not None
    assert found.logits.shape == (1, 225)
    assert found.logits.std() > 0


def test_a_network_that_reads_the_parity_too_says_what_the_one_before_said(tmp_path: Path) -> None:
    source = written(tmp_path / "w.safetensors", "gomoku", RESNET, size=9)
    start = read(origin="w.safetensors", run="wider", overrides=["network.parity=true"])
    state = from_bytes(start.weights)[0]
    planes = source["stem.weight"].shape[1]
    assert torch.equal(state["stem.weight"][:, :planes], source["stem.weight"])
    assert state["stem.weight"].shape[1] == planes + 1
    assert not state["stem.weight"][:, planes:].any()
    assert all(torch.equal(state[name], tensor) for name, tensor in source.items() if name != "stem.weight")


def test_a_run_is_named_by_itself_and_by_version(tmp_path: Path) -> None:
    start = read(game="tic_tac_toe")
    start.run.create(start.config.run_sections())
    for version in (2, 3):
        written(start.run.path / "weights" / f"{version}.safetensors", "tic_tac_toe", start.config.network, version)
    assert read_origin(start.config, "tic_tac_toe").meta.version == 3
    assert read_origin(start.config, "tic_tac_toe:2").meta.version == 2


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"origin": "absent", "run": "x"}, NotFound, "run 'absent' has no weights"),
        ({"origin": "w.safetensors", "game": "connect_four"}, ConfigError, "has weights of tic_tac_toe, the run is to learn connect_four"),
        ({"origin": "w.safetensors", "overrides": ["network.channels=8"]}, ConfigError, "does not fit the run's network"),
        ({"origin": "broken.safetensors", "run": "x"}, WeightsError, "broken.safetensors: .* not whole safetensors"),
        ({"freeze": "trunk"}, ConfigError, "name them with --from"),
        ({"origin": "w.safetensors", "freeze": "heads"}, ConfigError, "learner.freeze"),
    ],
)
def test_what_nobody_means_is_refused_before_anything_is_made(
    tmp_path: Path, given: dict[str, Any], error: type[Exception], named: str
) -> None:
    written(tmp_path / "w.safetensors", "tic_tac_toe", RESNET)
    (tmp_path / "broken.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(error, match=named):
        read(**given)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_exists_keeps_its_weights(tmp_path: Path) -> None:
    written(tmp_path / "w.safetensors", "tic_tac_toe", RESNET)
    start = read(origin="w.safetensors")
    start.run.create(start.config.run_sections())
    with pytest.raises(ConfigError, match="exists and keeps its weights"):
        read(origin="w.safetensors")


def test_the_first_weights_are_announced_before_a_learner_is_there(tmp_path: Path) -> None:
    bus, store = MemoryBus(), DictStore()
    written(tmp_path / "w.safetensors", "tic_tac_toe", RESNET)
    start = read(origin="w.safetensors", run="again")
    sections, ledger = start.config.run_sections(), MemoryLedger(bus)
    ledger.create_run(record_of("again", sections, RunDir(tmp_path, "again").path, 1, {}))
    publish_first(ledger, bus, store, "again", start.weights, sections)
    (event,) = read_weights(bus, "again")
    assert (event.version, event.step) == (1, 0)
    assert store.get(event.uri, event.sha256) == start.weights


def test_the_average_of_versions_is_a_file_of_its_own(tmp_path: Path) -> None:
    states = [written(tmp_path / f"{version}.w", "tic_tac_toe", RESNET, version, seed=version) for version in (2, 4)]
    client: Any = SimpleNamespace(read_weights=lambda run, number: (tmp_path / f"{number}.w").read_bytes())
    told = average_weights(Config(), client, "r", "2,4", None)
    state, meta = from_bytes(Path(told["file"]).read_bytes())
    assert told["versions"] == [2, 4]
    assert meta.version == 0
    for name in state:
        torch.testing.assert_close(state[name], (states[0][name] + states[1][name]) / 2)


@pytest.mark.parametrize("versions", ["3", "3,", "3,x", ""])
def test_an_average_needs_two_numbers(versions: str) -> None:
    with pytest.raises(ConfigError, match="at least two numbers"):
        average_weights(Config(), SimpleNamespace(), "r", versions, None)  # type: ignore[arg-type]


def test_networks_of_different_sizes_have_no_average(tmp_path: Path) -> None:
    written(tmp_path / "2.w", "tic_tac_toe", RESNET, 2)
    written(tmp_path / "4.w", "tic_tac_toe", RESNET.model_copy(update={"blocks": 3}), 4)
    client: Any = SimpleNamespace(read_weights=lambda run, number: (tmp_path / f"{number}.w").read_bytes())
    with pytest.raises(WeightsError, match="no average"):
        average_weights(Config(), client, "r", "2,4", None)
