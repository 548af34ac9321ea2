"""Slots, streams and graphs as they are, on a fake device that does its work late."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import FakeGraph
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from inference_doubles import CONFIG, NETWORK, RUN, SPEC, Shelf, make_server, observations, raising, serving, weights
from memory_broker import MemoryBus
from waiting import PATIENCE_S, until

from azq.config import InferenceConfig
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.cuda import APART, SLOTS, GraphForward, Graphs
from azq.inference.device.engine import Engine, Execution, Mode, fastest_layout
from azq.inference.device.forward import CaptureRefused, EagerForward, buckets
from azq.inference.device.model import Model
from azq.nets import build, from_bytes
from azq.nets.device import Placement

BRIEF = CONFIG.model_copy(update={"device": "cuda", "precision": "bfloat16", "max_batch": 64, "batch": 64})
EXACT = BRIEF.model_copy(update={"precision": "float32"})
CPU = torch.device("cpu")
QUICK = settings(max_examples=12, deadline=None, phases=(Phase.generate,), suppress_health_check=[HealthCheck.function_scoped_fixture])


class GraphEngine(Engine):
    """An engine with few sizes, so that each is met often."""

    def __init__(self, config: InferenceConfig) -> None:
        super().__init__(config)

    def sizes(self, execution: Execution) -> tuple[int, ...]:
        return buckets(execution.max_batch, per_octave=2, smallest=4)


@pytest.fixture
def engine(fake_cuda):
    return GraphEngine(EXACT)


def model_of(engine, seed=1, network=NETWORK):
    model = Model(SPEC, network, engine)
    model.load(weights(seed, network=network))
    return model


def loaded(engine, seed=1):
    model = model_of(engine, seed)
    assert model.execution == Execution(Mode.FAST, 64)
    return model


@lru_cache
def eager(seed, sizes):
    module = fastest_layout(build(NETWORK, SPEC)).eval().requires_grad_(False)
    module.load_state_dict(from_bytes(weights(seed))[0])
    return EagerForward(module, CPU, sizes)


def expected_of(engine, seed, packed):
    return eager(seed, engine.sizes(Execution(Mode.FAST, 64))).launch(packed).wait()


def served_by(engine, bus=None, name="inference@test:1"):
    """A server with weights, a client of it and where further weights are published."""
    bus = bus or MemoryBus()
    shelf = Shelf(bus)
    shelf.publish(1, weights(1))
    return make_server(bus, bus, shelf, name, engine=engine), StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions), shelf


@pytest.fixture
def models(engine):
    """Of two versions."""
    return [loaded(engine, seed) for seed in (1, 2)]


@QUICK
@given(data=st.data())
def test_batches_in_flight_keep_their_own_inputs_and_outputs(engine, models, data):
    batches = []
    for number in range(data.draw(st.integers(1, 8))):
        seed, count = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 64))
        packed = observations(count, seed=number)
        batches.append((seed, packed.copy(), models[seed - 1].launch(packed)))
        packed[:] = 0  # the caller may reuse it at once
        while batches and data.draw(st.booleans()):
            seed, asked, running = batches.pop(data.draw(st.integers(0, len(batches) - 1)))
            assert running.finite()
            assert all(map(np.array_equal, running.wait(), expected_of(engine, seed, asked)))
    for seed, asked, running in batches:
        assert all(map(np.array_equal, running.wait(), expected_of(engine, seed, asked)))


def test_a_flight_says_when_it_is_done_and_lets_its_slot_go(engine):
    running = loaded(engine).launch(observations(9))
    looks = 1
    while not running.done():
        looks += 1
    assert looks > 1
    running.wait()
    assert running.done()
    assert running.wait() is running.wait()


def test_all_versions_share_graphs_captured_on_a_stream_on_which_nothing_runs(engine, models, fake_cuda):
    for model in models:
        for count in (5, 20, 64):
            for _ in range(SLOTS):
                model.evaluate(observations(count))
    assert len(fake_cuda.captures) == len(engine.sizes(engine.execution))  # whatever versions come
    assert not fake_cuda.stalls  # batches of others go on meanwhile
    ((stream, _pool),) = set(fake_cuda.captures)
    assert stream.captured
    assert not stream.ran


def test_a_pool_is_used_as_long_as_a_graph_lives_in_it(engine, fake_cuda):
    grown = NETWORK.model_copy(update={"blocks": 2})

    def networks_come_and_go():
        first = loaded(engine, 1)
        first.evaluate(observations(64))
        larger = model_of(engine, 2, grown)
        del first
        larger.evaluate(observations(64))

    networks_come_and_go()
    assert fake_cuda.pools == 1
    gc.collect()
    loaded(engine, 3)
    assert fake_cuda.pools == 2


def test_the_next_batch_is_queued_behind_the_one_that_computes(engine):
    """So the device waits for nobody between them; and each batch waits on the device for its own copies alone."""
    model, streams = loaded(engine), engine._streams
    packed = observations(64)
    batches = [model.launch(packed) for _ in range(SLOTS)]
    assert all(stream.work for stream in (streams.copy_in, streams.compute, streams.copy_out))  # nothing was waited for
    assert np.array_equal(batches[0].wait()[0], expected_of(engine, 1, packed)[0])
    assert not batches[2].done()
    assert all(np.array_equal(batch.wait()[0], batches[0].wait()[0]) for batch in batches)


@pytest.mark.parametrize("wrong", [0, 40])
def test_the_self_test_sees_what_is_wrong_in_one_graph_alone(engine, monkeypatch, wrong):
    body = Graphs._body

    def spoilt(graphs, size):
        body(graphs, size)
        if size == 48:  # from row `wrong` on
            graphs._outputs[APART + 7 * wrong : APART + 7 * size] = torch.arange(7 * (size - wrong)) % 7

    monkeypatch.setattr(Graphs, "_body", spoilt)
    model = model_of(engine)
    assert model.execution.mode is Mode.EAGER


def test_a_capture_that_fails_leaves_the_stream_in_use_as_it_was(engine, fake_cuda):
    before = torch.cuda.current_stream()
    fake_cuda.fail = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    model = model_of(engine)
    packed = observations(50)
    logits, _ = model.evaluate(packed)
    assert torch.cuda.current_stream() is before
    assert model.execution.mode is Mode.EAGER
    assert engine.execution_for((SPEC, NETWORK)).mode is Mode.EAGER
    fake_cuda.fail = None
    grown = NETWORK.model_copy(update={"blocks": 2})
    larger = model_of(engine, network=grown)
    assert larger.execution.mode is Mode.FAST  # what one network could not, another may
    assert np.array_equal(logits, expected_of(engine, 1, packed)[0])


def test_memory_that_runs_out_makes_batches_smaller_and_is_given_back_first(fake_cuda, monkeypatch):
    engine = GraphEngine(EXACT.model_copy(update={"max_batch": 256}))
    model = model_of(engine)
    packed = observations(100)
    expected = model.evaluate(packed)
    fake_cuda.rows = 150
    old: list[Any] = []
    sizes, seen = engine.sizes, []

    def sized(execution):
        seen.append((execution.max_batch, [one() is None for one in old]))
        return sizes(execution)

    def noted(graphs, *given, **options):
        old.append(weakref.ref(graphs))
        make(graphs, *given, **options)

    make = Graphs.__init__
    monkeypatch.setattr(engine, "sizes", sized)
    monkeypatch.setattr(Graphs, "__init__", noted)
    del model
    gc.collect()
    model = model_of(engine)
    assert model.execution == Execution(Mode.FAST, 128)
    assert (256, []) in seen
    assert (128, [True]) in seen
    assert len(model.evaluate(observations(250))[0]) == 250
    assert np.array_equal(model.evaluate(packed)[0], expected[0])


def test_whoever_waits_for_the_first_start_is_told_what_for(engine, fake_cuda, monkeypatch):
    server, _, _ = served_by(engine)
    graphs, record, go_on = len(engine.sizes(engine.execution)), Graphs._record, threading.Event()

    def slow(some, size):
        if len(fake_cuda.captures) == 3:
            assert go_on.wait(PATIENCE_S)
        record(some, size)

    monkeypatch.setattr(Graphs, "_record", slow)
    with serving(server):
        until(lambda: server.note == f"recording graphs: 3 of {graphs}", "the fourth graph is being recorded")
        assert server.versions == {}
        go_on.set()
        until(lambda: server.versions == {RUN: 1}, "weights are served")
        until(lambda: server.note == "", "nobody waits any more")


def test_what_fails_in_service_is_made_again_without_a_graph(fake_cuda, monkeypatch):
    engine, packed = GraphEngine(EXACT.model_copy(update={"max_batch": 128})), observations(50)
    model = model_of(engine)
    monkeypatch.setattr(model.built[2], "launch", raising(torch.OutOfMemoryError("CUDA out of memory")))
    captured = len(fake_cuda.captures)
    assert np.array_equal(model.evaluate(packed)[0], expected_of(engine, 1, packed)[0])
    assert model.execution == Execution(Mode.EAGER, 64)
    assert len(fake_cuda.captures) == captured  # others wait
    loaded(engine, 2)  # with graphs for so many leaves


def test_captures_are_taken_one_at_a_time(engine, fake_cuda, monkeypatch):
    begin, locked = FakeGraph.capture_begin, []

    def noted(graph, *given, **options):
        locked.append(engine._streams.capturing.locked())
        return begin(graph, *given, **options)

    monkeypatch.setattr(FakeGraph, "capture_begin", noted)
    loaded(engine)
    assert locked == [True] * len(engine.sizes(engine.execution))


def test_a_batch_that_fails_waits_for_no_warm_up(engine, monkeypatch):
    """In which cuDNN may search and torch compile, for many seconds."""
    model, packed = loaded(engine), observations(50)
    begun, go_on = threading.Event(), threading.Event()
    body, grown = Graphs._body, NETWORK.model_copy(update={"blocks": 2})

    def slow(graphs, size):
        begun.set()
        assert go_on.wait(PATIENCE_S)
        body(graphs, size)

    monkeypatch.setattr(Graphs, "_body", slow)
    thread = threading.Thread(target=Model(SPEC, grown, engine).load, args=(weights(2, network=grown),))
    thread.start()
    try:
        assert begun.wait(PATIENCE_S)
        model.built[2].launch = raising(RuntimeError("no kernel image is available"))
        assert np.array_equal(model.evaluate(packed)[0], expected_of(engine, 1, packed)[0])
        assert thread.is_alive()
    finally:
        go_on.set()
        thread.join(PATIENCE_S)
    assert not engine._streams.capturing.locked()


def test_a_body_that_waits_for_the_device_is_refused_as_torch_refuses_it(engine, fake_cuda, monkeypatch):
    def waits(graphs, size):
        graphs._input[:size].sum().item()

    monkeypatch.setattr(Graphs, "_body", waits)
    with pytest.raises(CaptureRefused, match="previous error during capture"):
        engine.forward(build(NETWORK, SPEC).eval(), engine.execution, (SPEC, NETWORK))[1].refresh()
    assert not fake_cuda.captures


def test_the_thread_that_serves_records_nothing_whatever_sizes_come(fake_cuda):
    """Nor does cuDNN search but where graphs are recorded: what it finds it keeps for each thread apart."""
    engine = GraphEngine(BRIEF.model_copy(update={"batch": 0, "deadline_ms": "auto"}))
    bus = MemoryBus()
    shelf = Shelf(bus)
    client = StreamEvaluator(bus, RUN, "c1", num_actions=SPEC.num_actions)
    server = make_server(bus, bus, shelf, engine=engine)
    with serving(server):
        for version in (1, 2):
            shelf.publish(version, weights(version, version=version))
            until(lambda version=version: server.versions == {RUN: version}, f"version {version} is served")
            assert len(fake_cuda.captures) == len(engine.sizes(engine.execution)) + 1  # and one of a way that is slower
            for count in range(1, 65, 7):
                assert client.result(client.submit(observations(count)), timeout_s=PATIENCE_S) is not None
        assert server.rates()["fallbacks"] == 0
    assert fake_cuda.recorders == {"loading"}
    assert fake_cuda.searches == {True}
    assert not torch.backends.cudnn.benchmark


def test_a_request_that_comes_while_a_batch_is_under_way_is_launched_beside_it(engine, monkeypatch):
    server, client, _ = served_by(engine)
    try:
        until(lambda: server.step(5) == 0 and server.versions == {RUN: 1}, "weights are served")
        first = client.submit(observations(64))
        until(lambda: server.step(5) == 0 and bool(server.launched), "the first is launched")
        ended = threading.Event()
        monkeypatch.setattr(server.launched[0].running, "done", ended.is_set)  # a long batch
        second = client.submit(observations(64, seed=2))
        until(lambda: server.step(5) == 0 and len(server.launched) == 2, "the second is launched")
        ended.set()
        until(lambda: server.step(5) >= 0 and server.stats.evaluations == 128, "both are answered")
        assert all(client.result(handle, timeout_s=PATIENCE_S) is not None for handle in (first, second))
    finally:
        server.close()


def test_only_the_large_sizes_are_compiled_each_by_itself(fake_cuda, monkeypatch):
    options, compiled = [], []

    def compile_(module, **given):
        def call(packed):
            compiled.append(len(packed))
            return module.forward(packed)

        options.append(given)
        module._compiled_call_impl = call

    monkeypatch.setattr(torch.nn.Module, "compile", compile_)
    monkeypatch.setattr(GraphForward, "device_s", lambda forward, _packed: float(not forward._graphs._compiled))
    model = model_of(GraphEngine(EXACT.model_copy(update={"compile": True})))
    assert model.execution == Execution(Mode.FAST, 64, "compiled")
    assert options[0] == {"dynamic": False, "fullgraph": True}
    assert set(compiled) == {16, 24, 32, 48, 64}
    compiled.clear()
    model.evaluate(observations(3))
    assert not compiled  # a replay compiles nothing


@pytest.mark.parametrize("kind", ["mlp", "transformer", "structured"])
def test_other_networks_run_as_graphs_too(engine, kind):
    model = model_of(engine, network=NETWORK.model_copy(update={"kind": kind, "heads": 2}))
    assert model.execution.mode is Mode.FAST
    packed = observations(30)
    logits, values = model.evaluate(packed)
    expected = model.plain(packed)
    assert np.allclose(logits, expected[0].numpy(), atol=2e-3)
    assert np.allclose(values, expected[1].numpy(), atol=2e-3)


def test_an_engine_on_cuda_keeps_three_batches_under_way_and_few_sizes(fake_cuda, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)  # put back at the end
    placement = Placement(torch.device("cuda:0"), torch.bfloat16, 1)
    engine = Engine(InferenceConfig(), placement)
    sizes = engine.sizes(engine.execution)
    assert engine.in_flight == SLOTS == 3
    assert engine.execution == Execution(Mode.FAST, 8192)
    assert sizes == (64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192)
    assert not torch.backends.cudnn.allow_tf32  # float32 is what bfloat16 is checked against and falls back to
    assert Engine(InferenceConfig(), Placement(CPU, torch.bfloat16, 1)).execution.max_batch == 4096


def test_one_thread_at_a_time_uses_an_mps_device(fake_cuda, monkeypatch):
    """Torch's MPS has one stream for all threads."""
    engine, move, seen = Engine(EXACT, Placement(torch.device("mps"), torch.float32, 1)), torch.Tensor.to, list[bool]()
    lock: Any = engine.exclusive

    def noted(tensor, *given, **named):
        if torch.device("mps") in (*given, *named.values()):
            seen.append(lock._is_owned())
        return move(tensor, *given, **named)

    monkeypatch.setattr(torch.Tensor, "to", noted)
    model = model_of(engine)
    loaded_with = len(seen)
    assert len(model.evaluate(observations(20))[0]) == 20
    assert len(seen) > loaded_with
    assert all(seen)


def test_a_worker_leaves_large_requests_that_it_has_no_room_for_to_others(engine):
    bus = MemoryBus()
    (one, client, _), (other, _, _) = (served_by(engine, bus, name) for name in ("inference@test:1", "inference@test:2"))
    try:
        for server in (one, other):
            until(lambda server=server: server.step(5) == 0 and server.versions == {RUN: 1}, "weights are served")
        first = client.submit(observations(64))
        until(lambda: one.step(5) == 64, "the first says how large requests are")
        handles = [client.submit(observations(64, seed=seed)) for seed in range(8)]
        one.step(5)
        assert sum(1 for _ in one.held()) == 2
        other.step(5)
        assert sum(1 for _ in other.held()) >= 2
        with serving(one), serving(other):
            assert all(client.result(handle, timeout_s=PATIENCE_S) is not None for handle in (first, *handles))
    finally:
        one.close()
        other.close()
