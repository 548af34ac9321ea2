"""Weights as bytes."""

from __future__ import annotations

import json
import struct

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from azq.config import NetworkConfig
from azq.errors import WeightsError
from azq.nets import NetSpec, WeightsMeta, build, from_bytes, load_into, to_bytes
from azq.nets.weights import state_to_bytes

SPEC = NetSpec(2, 3, 3, 1, 9, 1)
NETWORK = NetworkConfig(blocks=1, channels=8)
META = WeightsMeta("tic_tac_toe", 7, 70, {"size": 3}, NETWORK.model_dump(mode="json"))
WHOLE = to_bytes(build(NETWORK, SPEC, seed=1), META)


def test_round_trip():
    source, target = build(NETWORK, SPEC, seed=1), build(NETWORK, SPEC, seed=2)
    state, meta = from_bytes(to_bytes(source, META))
    assert meta == META
    load_into(target, state)
    assert all(torch.equal(value, target.state_dict()[name]) for name, value in source.state_dict().items())


def test_a_state_of_another_precision_is_written_in_float32():
    module = build(NETWORK, SPEC, seed=1).to(torch.bfloat16)
    state, _ = from_bytes(to_bytes(module, META))
    assert all(value.dtype == torch.float32 and torch.equal(value, module.state_dict()[name].float()) for name, value in state.items())


def test_half_precision_is_read_as_float32_and_what_it_cannot_hold_is_refused():
    module = build(NETWORK, SPEC, seed=1)
    data = state_to_bytes(module.state_dict(), META, torch.float16)
    state, meta = from_bytes(data)
    assert meta == META
    assert len(data) < 0.6 * len(WHOLE)
    assert all(torch.equal(value, module.state_dict()[name].half().float()) for name, value in state.items())
    next(module.parameters()).data[:] = 1e6
    with pytest.raises(WeightsError, match="infinity"):
        from_bytes(state_to_bytes(module.state_dict(), META, torch.float16))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_every_truncation_is_refused(length):
    with pytest.raises(WeightsError):
        from_bytes(WHOLE[:length])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused_by_name(bad):
    module = build(NETWORK, SPEC, seed=1)
    with torch.no_grad():
        module.get_parameter("squeeze.bias")[3] = bad
    with pytest.raises(WeightsError, match=r"tensor squeeze\.bias holds NaN or infinity"):
        from_bytes(to_bytes(module, META))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"channels": 16}, r"tensor stem.weight is \(8, 2, 3, 3\), the network has \(16, 2, 3, 3\)"),
        ({"blocks": 2}, "tensor blocks.1.a.weight is missing"),
        ({"kind": "mlp"}, "do not fit"),
    ],
)
def test_weights_that_do_not_fit_are_refused_whole(change, match):
    target = build(NETWORK.model_copy(update=change), SPEC, seed=2)
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with pytest.raises(WeightsError, match=match):
        load_into(target, from_bytes(WHOLE)[0])
    assert all(torch.equal(before[name], value) for name, value in target.state_dict().items())


def test_a_tensor_too_many_is_refused():
    state, _ = from_bytes(WHOLE)
    with pytest.raises(WeightsError, match="it has no tensor more"):
        load_into(build(NETWORK, SPEC), state | {"more": torch.zeros(1)})


def test_safetensors_of_others_are_refused():
    with pytest.raises(WeightsError, match="not written by azq"):
        from_bytes(safetensors.torch.save({"a": torch.zeros(2)}))
    with pytest.raises(WeightsError, match="not written by azq"):
        from_bytes(safetensors.torch.save({"a": torch.zeros(2)}, {"azq": '{"schema": 1, "colour": "red"}'}))
    with pytest.raises(WeightsError, match="schema 9, this azq reads 1"):
        from_bytes(safetensors.torch.save({"a": torch.zeros(2)}, {"azq": '{"schema": 9}'}))


def test_the_header_is_plain_json():
    (length,) = struct.unpack_from("<Q", WHOLE)
    described = json.loads(json.loads(WHOLE[8 : 8 + length])["__metadata__"]["azq"])
    assert described["game"] == "tic_tac_toe"
    assert described["network"] == NETWORK.model_dump(mode="json")
