"""Networks as ONNX: what ONNX Runtime says of trained ones is what PyTorch says, and the bytes are the same everywhere."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from sharp_nets import KINDS, sharp_bytes

from azq import games
from azq.nets import from_bytes, restore, unpack
from azq.nets.onnx import OPSET, to_onnx
from azq.parts.volunteers.model_maker import probe_positions

LOGITS_OFF = 2e-6  # of the largest logit
VALUES_OFF = 1e-5


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    """A trained network and its ONNX bytes, with a module that makes them again."""
    data = sharp_bytes(request.param)
    module = restore(data, games.load(from_bytes(data)[1].game))
    return KINDS[request.param][0], module, to_onnx(module)


@pytest.mark.parametrize("count", [1, 2, 37])
def test_trained_networks_answer_as_in_pytorch(made, count):
    game, module, data = made
    planes, scalars = unpack(torch.from_numpy(probe_positions(games.load(game), count)), module.spec)
    with torch.inference_mode():
        logits, values = (output.numpy() for output in module(planes, scalars))
    inputs = {"planes": planes.numpy()} | ({"scalars": scalars.numpy()} if module.spec.scalars else {})
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    found = session.run(["logits", "values"], inputs)
    assert [one.shape for one in found] == [(count, module.spec.num_actions), (count, module.spec.value_size)]
    assert np.ptp(logits, axis=1).max() > 8  # they are sharp
    assert np.abs(found[0] - logits).max() <= LOGITS_OFF * np.abs(logits).max()
    assert np.abs(found[1] - values).max() <= VALUES_OFF * max(1, np.abs(values).max())


def test_the_file_is_a_network_and_nothing_else(made):
    _, module, data = made
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", OPSET)]
    assert [one.name for one in model.graph.input] == ["planes", "scalars"][: 2 if module.spec.scalars else 1]
    assert {one.name for one in model.graph.initializer} <= {name for node in model.graph.node for name in node.input}
    assert not any(node.doc_string for node in model.graph.node)
    assert not model.metadata_props
    assert b".py" not in data
    assert b"advantage" not in data
    assert b"/tmp" not in data


AGAIN = """
import hashlib, pathlib, sys
from azq import games
from azq.nets import restore
from azq.nets.onnx import to_onnx
print(hashlib.sha256(to_onnx(restore(pathlib.Path(sys.argv[1]).read_bytes(), games.load("blob")))).hexdigest())
"""


def test_two_processes_make_the_same_bytes(tmp_path):
    weights = tmp_path / "weights"
    weights.write_bytes(sharp_bytes("transformer"))
    here = to_onnx(restore(sharp_bytes("transformer"), games.load("blob")))
    done = subprocess.run([sys.executable, "-c", AGAIN, str(weights)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [hashlib.sha256(here).hexdigest()]
