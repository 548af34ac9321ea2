"""Inference on a CUDA device: what graphs answer, what happens while they are recorded, and what when the device does not follow."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from inference_doubles import CONFIG, NETWORK, RUN, SPEC, Shelf, ask, make_server, observations, same_bits, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.inference.ask.client import StreamEvaluator
from azq.inference.ask.local import LocalEvaluator
from azq.inference.device.cuda import SLOTS, CudaStreams
from azq.inference.device.engine import Engine, Execution, Mode
from azq.inference.device.forward import InFlightBatch
from azq.inference.device.model import Model
from azq.search.evaluator import Evaluation

pytestmark = pytest.mark.gpu

BRIEF = CONFIG.model_copy(update={"device": "cuda", "precision": "bfloat16", "max_batch": 512, "batch": 512})
EXACT = BRIEF.model_copy(update={"precision": "float32"})
EDGES = sorted({size + step for size in (64, 128, 256, 512) for step in (-1, 0, 1) if size + step <= 512} | {1, 7})


def engine_of(config):
    return Engine(config)


def loaded(engine, seed=1, config=BRIEF, network=NETWORK, mode=Mode.FAST):
    model = Model(SPEC, network, engine)
    model.load(weights(seed, network=network))
    assert model.execution.mode is mode
    return model


@pytest.fixture(scope="module")
def pairs():
    """By precision: a model that runs as graphs, and one that runs op by op."""
    found = {}
    for config in (BRIEF, EXACT):
        engine, plain = engine_of(config), engine_of(config)
        plain.execution = Execution(Mode.EAGER, 512)
        found[config.precision] = loaded(engine, config=config), loaded(plain, config=config, mode=Mode.EAGER)
    return found


@settings(max_examples=40, deadline=None, phases=(Phase.generate,))
@given(
    precision=st.sampled_from(["bfloat16", "float32"]),
    counts=st.lists(st.sampled_from(EDGES), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
def test_graphs_op_by_op_and_the_reference_agree(pairs, precision, counts, seed):
    graph, eager = pairs[precision]
    packed = [observations(count, seed=seed + index) for index, count in enumerate(counts)]
    batches = [graph.launch(rows) for rows in packed]  # more than there are slots
    for rows, running in zip(packed, batches, strict=True):
        logits, values = graph.complete(running, rows)
        beside = eager.evaluate(rows)
        expected = graph.plain(rows)
        # Bit for bit in float32; in bfloat16 cuDNN tries kernels, and may choose another one for each.
        most = (0.0, 0.0) if precision == "float32" else (0.1, 0.03)
        assert np.abs(logits.astype(np.float32) - beside[0]).max() <= most[0]
        bounds = (0.15, 0.03) if precision == "bfloat16" else (2e-3, 1e-3)
        assert np.abs(logits.astype(np.float32) - expected[0].numpy()).max() <= bounds[0]
        assert np.abs(values.astype(np.float32) - expected[1].numpy()).max() <= bounds[1]
    assert graph.execution.mode is Mode.FAST


def test_all_graphs_are_recorded_before_a_network_serves(monkeypatch):
    model = loaded(engine_of(BRIEF))
    assert model.built[2].sizes == [64, 128, 256, 512]
    monkeypatch.delattr(CudaStreams, "record")
    assert all(len(model.evaluate(observations(count))[0]) == count for count in EDGES)
    assert model.execution.mode is Mode.FAST
    assert not torch.backends.cudnn.benchmark  # kernels are searched for where graphs are recorded


def test_stream_and_local_answer_the_same_bits_in_float32():
    bus = MemoryBus()
    shelf = Shelf(bus)
    shelf.publish(1, weights(1))
    local = LocalEvaluator.from_bytes(SPEC, weights(1), EXACT)
    client = StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions)
    with serving(make_server(bus, bus, shelf, config=EXACT)):
        for count in EDGES:  # one at a time: together they would be a batch of another size
            packed = observations(count, seed=count)
            beside = local.result(local.submit(packed), timeout_s=PATIENCE_S)
            assert same_bits(ask(client, packed), Evaluation(beside.logits, beside.values, 1))
    local.close()


@pytest.mark.parametrize("kind", ["resnet", "mlp", "transformer", "structured"])
def test_batches_in_flight_for_long_stay_apart(kind):
    """Would show buffers that two slots write to, or copies that come too early: each batch has its own answer, thousands of times."""
    network = NETWORK.model_copy(update={"kind": kind, "blocks": 3, "channels": 64, "heads": 4})
    model = loaded(engine_of(BRIEF), network=network)
    packed = [observations(512, seed=seed) for seed in range(4)]
    expected = [model.evaluate(rows) for rows in packed]
    batches: deque[tuple[int, InFlightBatch]] = deque()
    for number in range(2000):
        batches.append((number % 4, model.launch(packed[number % 4])))
        if len(batches) == SLOTS:
            index, running = batches.popleft()
            assert all(map(np.array_equal, running.wait(), expected[index]))
    assert model.execution.mode is Mode.FAST


def test_weights_are_swapped_under_load_with_batches_in_flight():
    bus = MemoryBus()
    shelf = Shelf(bus)
    shelf.publish(1, weights(1))
    engine = engine_of(EXACT)
    packed = [observations(512, seed=seed) for seed in range(4)]
    expected = {}
    for version in range(1, 8):
        model = loaded(engine, version, EXACT)
        expected[version] = [model.evaluate(rows)[0] for rows in packed]
    del model
    server = make_server(bus, bus, shelf, engine=engine)
    client = StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions)
    with serving(server):
        for version in range(1, 8):
            if version > 1:
                shelf.publish(version, weights(version, version=version))
            for _ in range(10):
                handles = [client.submit(rows) for rows in packed]
                for number, handle in enumerate(handles):
                    answer = client.result(handle, timeout_s=PATIENCE_S)
                    assert np.array_equal(answer.logits, expected[answer.weight_version][number])
            until(lambda version=version: server.versions == {RUN: version}, f"version {version} is served")
        assert same_bits(ask(client, packed[0], weight_version=6), ask(client, packed[0], weight_version=6))
    assert server.rates()["fallbacks"] == 0
    assert server.rates()["phase_device_forward"] > 0.0


def test_graphs_are_recorded_while_another_thread_evaluates_and_loads():
    engine = engine_of(EXACT)
    serving_model = loaded(engine, config=EXACT)
    sizes = (64, 128, 256, 512)
    packed = {size: observations(size, seed=size) for size in sizes}
    expected = {size: serving_model.evaluate(packed[size])[0] for size in sizes}
    stop, failures = threading.Event(), []
    rounds: list[int] = []

    def load_others():
        try:
            while not stop.is_set():
                network = NETWORK.model_copy(update={"blocks": 2 + len(rounds)})  # all versions of one share their graphs
                other = loaded(engine, 2, EXACT, network)
                for size in sizes:
                    other.evaluate(packed[size])
                other.load(weights(50, network=network))
                rounds.append(len(rounds))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=load_others)
    thread.start()
    try:
        number = 0
        while len(rounds) < 5 and not failures:
            size = sizes[number % len(sizes)]
            number += 1
            running = serving_model.launch(packed[size])
            assert np.array_equal(serving_model.complete(running, packed[size])[0], expected[size])
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not failures
    assert engine.fallbacks == 0


def test_memory_that_runs_out_makes_batches_smaller():
    engine = engine_of(BRIEF.model_copy(update={"max_batch": 65536}))
    network = NETWORK.model_copy(update={"blocks": 2, "channels": 64})
    model = Model(SPEC, network, engine)
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 256 * 2**20) / total)
    try:
        model.load(weights(1, network=network))  # graphs take their memory as they are recorded
        packed = observations(65536)
        logits, _ = model.evaluate(packed)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert model.execution.max_batch < 65536 or model.execution.mode is not Mode.FAST
    assert np.abs(logits[:64].astype(np.float32) - model.plain(packed[:64])[0].numpy()).max() <= 0.15


def test_outputs_that_are_not_finite_are_seen_on_the_device():
    model = loaded(engine_of(BRIEF))
    packed = observations(40)
    expected = model.evaluate(packed)[0]
    with torch.no_grad():
        next(iter(model.built[1].parameters())).fill_(float("nan"))  # the device's copy alone
    torch.cuda.synchronize()
    assert not model.launch(packed).finite()
    logits, _ = model.evaluate(packed)
    assert model.execution.mode is not Mode.FAST
    assert np.abs(logits.astype(np.float32) - expected).max() <= 0.15


@pytest.mark.parametrize("way", ["fused", pytest.param("compiled", marks=pytest.mark.slow), ""])
def test_every_way_to_run_a_network_computes_it(way):
    network = NETWORK.model_copy(update={"blocks": 2, "channels": 64})
    engine = engine_of(BRIEF.model_copy(update={"compile": True}))
    engine.choose((SPEC, network), {way: 0.001})
    model = loaded(engine, network=network)
    assert model.execution.kernels == way
    for count in (100, 512):
        packed = observations(count)
        assert np.abs(model.evaluate(packed)[0].astype(np.float32) - model.plain(packed)[0].numpy()).max() <= 0.15


def test_the_ways_are_measured_once_and_none_is_passed_over(capsys):
    engine = engine_of(BRIEF)
    for seed in (1, 2):
        loaded(engine, seed)
    said = capsys.readouterr().out
    assert said.count("way_chosen") == 1
    assert "way_skipped" not in said  # a torch that lacks the kernels, or a cuDNN that refuses them, would show here first


def test_a_capture_that_torch_refuses_leaves_a_device_that_works(monkeypatch):
    engine, captured = engine_of(BRIEF), CudaStreams._captured
    alive = loaded(engine)  # so that the pool is to be kept
    grown = NETWORK.model_copy(update={"blocks": 2})

    def refuse(streams, body):
        def with_a_wait():
            body()
            torch.cuda.current_stream().synchronize()  # what no graph may hold

        return captured(streams, with_a_wait)

    monkeypatch.setattr(CudaStreams, "_captured", refuse)
    model = loaded(engine, network=grown, mode=Mode.EAGER)
    monkeypatch.undo()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    packed = observations(33)
    assert np.abs(model.evaluate(packed)[0].astype(np.float32) - model.plain(packed)[0].numpy()).max() <= 0.15
    again = loaded(engine, network=NETWORK.model_copy(update={"blocks": 3}))  # the same engine records as before
    assert len(again.evaluate(packed)[0]) == len(alive.evaluate(packed)[0]) == 33
