"""Graphs of networks that torch's own compiler made, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Torch's own compiler, two shapes of networks, a thread each; the device only runs what is to be recorded.
COMPILING = """
import sys, threading, torch
from inference_doubles import NETWORK, SPEC
from azq.inference.device import cuda
from azq.inference.device.forward import CaptureRefused
from azq.inference.device.kernels import kernel_choices
from azq.nets import build

class Streams:
    device = torch.device("cpu")
    synchronize = report = staticmethod(lambda *_: None)
    record = staticmethod(torch.inference_mode()(lambda body: body()))

def backend(module, _inputs):
    compiled.append(module)
    return module.forward

def record(blocks):
    module = build(NETWORK.model_copy(update={"blocks": blocks}), SPEC).eval().requires_grad_(False)
    run = kernel_choices(module, torch.float32, compiled=True)["compiled"](module)
    try:
        cuda.Graphs(run, (8, 16, 24, 32, 48, 64), Streams(), compiled=True).record()
    except CaptureRefused:
        print("refused")

compiled, compile_ = [], torch.nn.Module.compile
torch.nn.Module.compile = lambda module, **given: compile_(module, backend=backend, **given)
cuda.MOST_COMPILED = int(sys.argv[1])
for blocks in (1, 2):
    thread = threading.Thread(target=record, args=(blocks,))
    thread.start()
    thread.join()
print(len(compiled))
"""


@pytest.mark.parametrize(("most", "output"), [(64, ["10"]), (8, ["refused", "8"])])
def test_every_shape_is_compiled_in_the_thread_that_loads_or_raises(most, output):
    """Torch's settings are of one thread, and beyond its limit it would go on op by op, and pass as compiled."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", COMPILING, str(most)], env=env, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == output
