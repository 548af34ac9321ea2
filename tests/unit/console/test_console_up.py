"""`azq up`: what is settled before anything starts, and a run that begins with the weights of another."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from learner_doubles import DictStore
from memory_broker import MemoryBus, MemoryLedger
from typer.testing import CliRunner
from waiting import PATIENCE_S

from azq import games
from azq.cli.app import app
from azq.config import InferenceConfig, NetworkConfig, load
from azq.console import up
from azq.console.session import Start
from azq.console.up import publish_first, read_origin
from azq.errors import ConfigError, NotFound, StateConflict, UnknownGameError, WeightsError
from azq.host.brokers import home_lock
from azq.host.devices import Machine, Wishes, plan
from azq.host.game_files import list_game
from azq.host.rundir import RunDir
from azq.inference.ask.local import LocalEvaluator
from azq.ledger.records import record_of
from azq.nets import WeightsMeta, build, from_bytes, restore, to_bytes
from azq.process.cards import Gpu
from azq.status.observe import read_weights


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def read(**given: object) -> Start:
    return up.read_start(up.UpRequest(**given))  # type: ignore[arg-type]


def test_the_preset_of_the_game_is_the_base() -> None:
    start = read(game="tic_tac_toe", overrides=["search.num_simulations=9"])
    assert start.run.name == "tic_tac_toe"
    assert start.config.network.kind == "mlp"
    assert start.config.search.num_simulations == 9


def test_a_stored_run_keeps_its_settings(tmp_path: Path) -> None:
    first = read(game="tic_tac_toe", run="mine", overrides=["search.num_simulations=9"])
    RunDir(tmp_path / "runs", "mine").create(first.config.run_sections())
    again = read(run="mine", overrides=["learner.batch_size=33"])
    assert again.config.run.game == "tic_tac_toe"
    assert again.config.search.num_simulations == 9
    assert again.config.learner.batch_size == 33
    with pytest.raises(ConfigError, match="learns tic_tac_toe"):
        read(run="mine", game="connect_four")
    with pytest.raises(ConfigError, match="'mine' exists and keeps its settings"):
        read(run="mine", preset="gpu")


def test_what_a_preset_sets_of_the_host_stays_with_the_run(tmp_path: Path) -> None:
    first = read(run="mine", preset="sprint,box-2gpu", overrides=["inference.max_batch=64"])
    assert (first.config.inference.devices, first.config.inference.max_batch) == (("cuda:1", "cuda:0"), 64)
    assert (first.config.learner.publish_every_s, first.host) == (3.0, {"inference": {"devices": ["cuda:1", "cuda:0"]}})
    RunDir(tmp_path / "runs", "mine").create(first.config.run_sections(), first.host)
    again = read(run="mine")
    assert (again.config.inference.devices, again.config.inference.max_batch) == (("cuda:1", "cuda:0"), 8192)
    assert (again.host, again.run.sections().learner.publish_every_s) == (first.host, 3.0)


def test_the_devices_of_a_machine_are_told_and_those_gone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, object]] = []

    def note(event: str, **facts: object) -> None:
        said.append((event, facts))

    cards = [Gpu(f"cuda:{number}", "H200", free_bytes=8 << 30, uuid=str(number)) for number in range(2)]
    machine = Machine("box", 16, 64 << 30, ("cpu", "cuda"), tuple(cards))
    config = read(overrides=[f'home="{tmp_path}"']).config
    monkeypatch.setattr(up, "log", SimpleNamespace(info=note, warning=note))
    monkeypatch.setattr(up, "detect", lambda: machine)
    assert up.plan_devices(config).inference == ("cuda:0", "cuda:1")
    assert said == [("device_plan", {"plan": str(plan(machine, Wishes.of(config)))})]
    said.clear()
    machine = replace(machine, gpus=(cards[0], replace(cards[1], uuid="", trouble="busy; end it")))
    assert up.plan_devices(config).inference == ("cuda:0",)
    assert [event for event, _ in said] == ["device_plan", "gpu_left_out", "gpu_left_out"]


def test_the_plan_can_be_read_beforehand_by_people_and_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = tuple(Gpu(f"cuda:{number}", "H200", 80 << 30, 80 << 30) for number in range(8))
    monkeypatch.setattr("azq.host.devices.detect", lambda: Machine("box", 192, 512 << 30, ("cpu", "cuda"), cards))
    answer = CliRunner().invoke(app, ["devices", "plan", "--preset", "box-8gpu"])
    lines = answer.output.splitlines()
    assert lines[0] == "cuda:0    H200, 80 GiB: trains"
    assert [line.rpartition(": ")[2] for line in lines[1:8]] == ["infers"] * 7
    assert lines[8] == "self-play 28 x 3 threads on 192 cores: 12 cores keep a GPU busy"
    told = json.loads(CliRunner().invoke(app, ["devices", "plan", "--set", "worker.concurrency=5", "--json"]).output)
    assert (told["plan"]["processes"], told["plan"]["training"], len(told["machine"]["gpus"])) == (5, ["cuda:0"], 8)


def test_a_python_file_that_was_named_is_allowed_to_this_runs_own_processes(tmp_path: Path) -> None:
    (tmp_path / "nim.py").write_text((Path(__file__).parents[2] / "games" / "nim.py").read_text("utf-8"), "utf-8")
    first = read(game="nim.py:Nim", overrides=['worker.game_files=["/games"]'])
    assert first.config.worker.game_files == (Path("/games"), tmp_path / "nim.py")
    RunDir(tmp_path / "runs", "nim").create(first.config.run_sections())
    with pytest.raises(ConfigError, match=r"runs/nim/run\.toml names game .*nim\.py:Nim, a Python file that this host does not allow"):
        read(run="nim")
    list_game(tmp_path / "runs", str(tmp_path / "nim.py:Nim"))
    assert read(run="nim").config.worker.game_files == (tmp_path / "nim.py",)
    assert read(game="tic_tac_toe").config.worker.game_files == ()


def test_unknown_games_end_before_anything_starts() -> None:
    with pytest.raises(UnknownGameError, match="connect_four"):
        read(game="nonsense")


def test_one_azq_up_a_home(tmp_path: Path) -> None:
    with home_lock(tmp_path), pytest.raises(StateConflict, match="another azq up"), home_lock(tmp_path):
        pass
    with home_lock(tmp_path):
        pass


def test_a_gateway_listens_where_others_reach_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(up.log, "warning", lambda event, **_: said.append(event))
    at_home = up.open_gateway(load(), None, None).gateway
    assert (at_home.host, at_home.port, at_home.plaintext, said) == ("127.0.0.1", 8090, False, [])
    open_to_all = up.open_gateway(load(), "192.168.0.5", 8091).gateway
    assert (open_to_all.host, open_to_all.port, open_to_all.plaintext, said) == ("192.168.0.5", 8091, True, ["plaintext"])
    with pytest.raises(ConfigError, match=r"gateway\.tls_certificate: .* cannot be read"):
        up.open_gateway(load(None, ['gateway.tls_certificate="absent.pem"', 'gateway.tls_key="absent.pem"']), "192.168.0.5", None)


def test_a_second_azq_takes_another_port_unless_one_was_chosen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        taken = first.getsockname()[1]
        usual = load(None, [])
        daemon = usual.daemon.model_construct(**{**usual.daemon.model_dump(), "port": taken}, _fields_set=set())
        usual = usual.model_copy(update={"daemon": daemon})
        assert up.beside_others(usual).daemon.port not in (taken, 0)
        chosen = load(None, [f"daemon.port={taken}"])
        assert up.beside_others(chosen) is chosen
    assert up.beside_others(usual) is usual


def test_the_command_that_goes_on_finds_home_and_ports_and_tells_no_secret() -> None:
    sets = ("home=/srv/my runs", "daemon.port=9090", "daemon.token=secret", "run.seed=3")
    assert up.again(up.UpRequest(overrides=sets)) == "azq up --set 'home=/srv/my runs' --set daemon.port=9090"
    assert up.again(up.UpRequest(config_file=Path("box.toml"))) == "azq up --config box.toml"


RESNET = NetworkConfig(kind="resnet", blocks=2, channels=16)


def written(path: Path, name: str, network: NetworkConfig, version: int = 7, seed: int = 5, **params: Any) -> dict[str, torch.Tensor]:
    """A weights file of these; its tensors."""
    module = build(network, games.load(name, **params), seed=seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(parameter.numel() + seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_bytes(module, WeightsMeta(name, version, 40, params, network.model_dump(mode="json"))))
    return dict(module.state_dict())


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
        found = evaluator.result(evaluator.submit(rules.new_initial_state().packed_observation()[None]), timeout_s=PATIENCE_S)
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
