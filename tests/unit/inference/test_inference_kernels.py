"""Kernels for a network on a CUDA device: what each choice computes, and which of them is taken, on a fake device."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda, unpack_bits
from inference_doubles import CONFIG, NETWORK, RUN, SPEC, Shelf, ask, make_server, observations, raising, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.config import LearnerConfig, NetworkConfig
from azq.errors import DeviceError
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device import engine as engine_module
from azq.inference.device import kernels
from azq.inference.device.cuda import GraphForward
from azq.inference.device.engine import Engine, Execution, Mode
from azq.inference.device.forward import Failure
from azq.inference.device.kernels import CUDNN, Compilations, ResNetPass, kernel_choices
from azq.inference.device.model import ROUNDS, Model
from azq.inference.device.tuning import tune
from azq.learner.step.trainer import autocast_dtype
from azq.nets import NetSpec, build, unpack
from azq.nets.residual import TORCH, ResNet

BRIEF = CONFIG.model_copy(update={"device": "cuda:0", "precision": "bfloat16", "max_batch": 64, "batch": 64})
NO_ENGINE = RuntimeError("FIND was unable to find an engine to execute this computation")
SPECS = {
    "three planes": NetSpec(3, 6, 7, 0, 7, 1),
    "scalars": NetSpec(5, 4, 4, 3, 17, 2),
    "outcomes": NetSpec(2, 8, 8, 0, 65, 1, outcome_weights=(1.0, -1.0)),
}


@pytest.fixture
def fastest(fake_cuda, monkeypatch):
    """Names the way that is to be measured as the fastest; others take a second."""
    named = ["fused"]
    fits = {"fused": lambda run: isinstance(run, ResNetPass) and run._kernels is CUDNN, "": lambda run: not isinstance(run, ResNetPass)}
    monkeypatch.setattr(GraphForward, "device_s", lambda forward, _rows: 1.0 - 0.5 * fits[named[0]](forward._run))
    return named


def model_of(network=NETWORK, config=BRIEF, engine=None):
    return Model(SPEC, network, engine or Engine(config))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("kernels", [CUDNN, TORCH], ids=["cudnn", "torch"])
@pytest.mark.parametrize("parity", [False, True], ids=["", "parity"])
def test_packed_heads_and_fused_kernels_compute_the_network(fake_cuda, spec, kernels, parity):
    module = ResNet(spec, blocks=2, channels=24, parity=parity).eval().requires_grad_(False)
    for tensor in module.parameters():
        tensor.add_(0.05 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    packed = torch.from_numpy(observations(33, spec=spec))
    exact = module(*unpack(packed, spec))
    rough = module.trunk_to(torch.bfloat16)(*unpack(packed, spec))
    made = ResNetPass(module, kernels)
    made.refresh()
    for got, in_float, in_bits in zip(made(packed), exact, rough, strict=True):
        assert got.shape == in_float.shape
        assert (got - in_float).abs().max() <= 2 * (in_bits - in_float).abs().max() + 2e-3 * in_float.abs().max()


def test_which_ways_suit():
    def names(kind, dtype=torch.bfloat16, compiled=False, fused=True, **changes):
        network = NetworkConfig(kind=kind, blocks=1, **{"channels": 16, **changes})
        return tuple(kernel_choices(build(network, SPEC), dtype, compiled=compiled, fused=fused))

    assert names("resnet", fused=False) == ("",)
    assert names("resnet") == ("fused", "")
    assert names("resnet", compiled=True) == ("fused", "compiled", "")
    assert names("resnet", channels=20) == ("",)
    columns = build(NetworkConfig(blocks=1, channels=16, global_heads=True), replace(SPEC, action_layout="columns"))
    assert tuple(kernel_choices(columns, torch.bfloat16, compiled=True)) == ("compiled", "")
    assert names("resnet", torch.float32) == names("mlp") == names("transformer") == ("",)
    assert names("mlp", compiled=True) == names("resnet", torch.float32, compiled=True) == ("compiled", "")


@pytest.mark.parametrize("name", ["fused", ""])
def test_the_fastest_is_taken_and_measured_once_for_a_shape(fastest, name, monkeypatch):
    fastest[0] = name
    measured = []
    device_s = GraphForward.device_s
    monkeypatch.setattr(GraphForward, "device_s", lambda forward, rows: measured.append(len(rows)) or device_s(forward, rows))
    model = model_of()
    engine = model.engine
    for version in (1, 2):
        model.load(weights(version, version=version))
        packed = observations(30)
        assert all(np.allclose(got, wanted, atol=0.03) for got, wanted in zip(model.evaluate(packed), model.plain(packed), strict=True))
    assert model.copy().execution == model.execution == engine.execution_for((SPEC, NETWORK)) == Execution(Mode.FAST, 64, name)
    assert measured == [64] * 2 * ROUNDS
    grown = NETWORK.model_copy(update={"blocks": 2})
    model_of(grown, engine=engine).load(weights(1, network=grown))
    assert len(measured) == 4 * ROUNDS
    mlp = NETWORK.model_copy(update={"kind": "mlp"})
    model_of(mlp, engine=engine).load(weights(1, network=mlp))
    assert len(measured) == 4 * ROUNDS
    assert engine.fallbacks == 0


@pytest.mark.parametrize(
    ("capability", "precision"), [((9, 0), "bfloat16"), ((8, 0), "bfloat16"), ((7, 5), "float16"), ((6, 1), "float32")]
)
def test_networks_run_in_what_the_card_multiplies(fastest, fake_cuda, capability, precision):
    fake_cuda.capability = capability
    model = model_of(config=BRIEF.model_copy(update={"precision": "auto"}))
    model.load(weights(1))
    assert model.engine.placement.precision == precision
    assert model.execution == Execution(Mode.FAST, 64, "fused" if precision != "float32" else "")
    in_training = torch.bfloat16 if precision == "bfloat16" else None  # float16 has too few exponents for gradients
    assert autocast_dtype(LearnerConfig(), model.engine.placement.device) is in_training


def test_a_slow_kernel_is_seen_by_the_devices_own_clock(fake_cuda):
    fake_cuda.slow["cudnn_convolution_add_relu"] = 0.01
    model = model_of()
    model.load(weights(1))
    assert model.execution == Execution(Mode.FAST, 64)


@pytest.mark.parametrize("spoil", [NO_ENGINE, torch.OutOfMemoryError("CUDA out of memory"), "wrong", "nan"])
def test_a_way_that_fails_is_passed_over_and_said(fastest, fake_cuda, spoil, monkeypatch, capsys):
    if isinstance(spoil, Exception):
        fake_cuda.refused["cudnn_convolution_add_relu"] = spoil
    else:
        bad = float("nan") if spoil == "nan" else 9.0
        monkeypatch.setattr(ResNetPass, "refresh", lambda made: made._bias.fill_(bad).__setitem__(0, -bad))
    model = model_of()
    model.load(weights(1))
    assert model.execution == Execution(Mode.FAST, 64)
    assert model.engine.fallbacks == 0
    assert capsys.readouterr().out.count("way_skipped") == 1


def test_where_all_ways_fail_the_ladder_goes_on(fastest, fake_cuda):
    fake_cuda.fail = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    model = model_of()
    model.load(weights(1))
    assert model.execution == Execution(Mode.EAGER, 64)
    fake_cuda.fail = None
    other = model_of(engine=model.engine)
    model.engine._demotions.clear()  # time went by
    other.load(weights(1))
    assert other.execution == Execution(Mode.FAST, 64, "fused")


def test_a_shape_that_the_fastest_way_fails_later_is_run_as_torch_runs_it(fastest, fake_cuda):
    now_s = 0.0
    model = model_of(engine=Engine(BRIEF, now_s=lambda: now_s))
    model.load(weights(1))
    engine = model.engine
    del model  # and its graphs
    gc.collect()
    fake_cuda.refused["cudnn_convolution_add_relu"] = RuntimeError("no kernel image is available")
    model = model_of(engine=engine)
    model.load(weights(2, version=2))
    assert model.execution == Execution(Mode.FAST, 64)
    fake_cuda.refused.clear()
    model.load(weights(3, version=3))
    assert model.execution.kernels == ""  # what graphs could not hold is not tried at once
    now_s = 60.0
    model.load(weights(4, version=4))
    assert model.execution.kernels == "fused"


@pytest.mark.parametrize("failure", [Failure.OUT_OF_MEMORY, Failure.CAPTURE, Failure.NOT_FINITE, Failure.BROKEN])
def test_what_fell_while_it_served_is_tried_again_after_a_while(fastest, failure):
    now_s = 0.0
    engine = Engine(BRIEF, now_s=lambda: now_s)
    bus = MemoryBus()
    shelf = Shelf(bus)
    shelf.publish(1, weights(1))
    server = make_server(bus, bus, shelf, engine=engine)
    client = StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions)
    packed = observations(40)
    with serving(server):
        until(lambda: server.versions == {RUN: 1}, "weights are served")
        best = server.served[RUN].execution
        assert best == Execution(Mode.FAST, 64, "fused")
        for pause_s in (60.0, 120.0):
            before = server.served[RUN].models.borrow(1)
            before._fall_back(failure, serving=True)  # as a batch that failed has it
            assert before.execution.mode is Mode.EAGER
            assert not server.served[RUN].models.renew(1)  # not yet
            now_s += pause_s
            until(lambda: server.served[RUN].execution == best, "it is recorded again")
            assert len(ask(client, packed).logits) == 40
            server.served[RUN].models.give_back(1)
    assert server.note == ""


def test_what_does_not_get_further_stays(fastest, fake_cuda):
    now_s = 0.0
    engine = Engine(BRIEF, now_s=lambda: now_s)
    model = model_of(engine=engine)
    model.load(weights(1))
    model._fall_back(Failure.CAPTURE, serving=True)
    assert model.recovered() is None
    now_s = 60.0
    fake_cuda.rows = 1  # all memory is gone
    assert model.recovered() is None
    assert engine.fallbacks > 1  # it was tried
    fake_cuda.rows = float("inf")
    now_s = 179.0  # and is again after so long as twice
    assert model.recovered() is None
    now_s = 180.0
    assert model.recovered().execution == Execution(Mode.FAST, 64, "fused")


@pytest.mark.parametrize("works", [True, False])
def test_what_a_process_beside_compiled_is_measured_once_it_is_there(fake_cuda, monkeypatch, works):
    def compile_(module, **_):
        module._compiled_call_impl = module.forward if works else raising(RuntimeError("no compiler"))

    done = [False]
    monkeypatch.setattr(torch.nn.Module, "compile", compile_)
    monkeypatch.setattr(engine_module, "can_compile", lambda: True)
    monkeypatch.setattr(Compilations, "done", lambda *_: done[0])
    monkeypatch.setattr(GraphForward, "device_s", lambda forward, _rows: float(not forward._graphs._compiled))
    model = model_of()
    model.load(weights(1))
    assert model.execution.kernels != "compiled"
    assert model.recovered() is None
    done[0] = True
    recovered = model.recovered()
    assert (recovered and recovered.execution) == (Execution(Mode.FAST, 64, "compiled") if works else None)
    assert model.engine.fallbacks == 0
    assert (recovered or model).recovered() is None  # measured once


def test_a_process_that_cannot_begin_costs_the_compiled_way_alone(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "COMMAND", ("/nowhere",))
    compilations, shape = Compilations(BRIEF), (SPEC, NETWORK)
    assert not compilations.done(shape)
    assert not compilations.done(shape)
    assert capsys.readouterr().out.count("not_compiled") == 1


@pytest.mark.parametrize("code", [0, 1])
def test_a_process_beside_compiles_each_shape_once(monkeypatch, tmp_path, code):
    begun = tmp_path / "begun"
    program = f"import sys; open({str(begun)!r}, 'a').write(sys.argv[1]); sys.exit({code})"
    monkeypatch.setattr(kernels, "COMMAND", (sys.executable, "-c", program))
    compilations, shape = Compilations(BRIEF), (SPECS["outcomes"], NETWORK)
    assert not compilations.done(shape)
    compilations._processes[shape].wait(PATIENCE_S)
    assert compilations.done(shape) == compilations.done(shape) == (code == 0)

    def compile_(_module, **_):
        compiled.append(1)

    compiled: list[int] = []
    FakeCuda().install(monkeypatch.setattr)
    monkeypatch.setattr(sys.modules["azq.nets.network"], "unpack_bits", unpack_bits)
    monkeypatch.setattr(torch.nn.Module, "compile", compile_)
    monkeypatch.setattr(sys, "argv", ["compiling", begun.read_text()])
    monkeypatch.setattr("azq.logs.setup", lambda _role: None)
    kernels.main()  # the process itself, with the order of the worker
    assert compiled


def test_a_device_that_another_process_holds_ends_the_worker_with_a_remedy(fake_cuda, monkeypatch):
    def busy(*_):
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be ...")

    monkeypatch.setattr(torch.cuda, "Stream", busy)
    with pytest.raises(DeviceError, match=r"on cuda:0 cannot begin: CUDA error: .* unavailable; .*`nvidia-smi -c DEFAULT`"):
        Engine(BRIEF)


def test_a_network_that_grew_keeps_the_batch_that_was_measured_on_an_idle_device(fastest, monkeypatch):
    engine = Engine(BRIEF)
    model = model_of(engine=engine)
    model.load(weights(1))
    config = BRIEF.model_copy(update={"batch": 0, "deadline_ms": "auto"})
    first = tune(model, config)
    monkeypatch.delattr(Model, "launch")
    assert tune(model, config, first) is first
