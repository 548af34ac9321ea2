"""`azq weights export` of each network that comes with azq: ONNX Runtime reads the file and answers as PyTorch does, at any batch."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from azq import games, pretrained
from azq.cli.app import app
from azq.nets import from_bytes, restore, unpack
from azq.volunteers.models import probe_positions

BATCHES = (1, 3, 257)
OFF = 1e-5  # of the largest number, but at least of 1


@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained.names())
def test_an_exported_network_answers_as_in_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = pretrained.verified(name).read_bytes(), tmp_path / "out.onnx"
    daemon: Any = SimpleNamespace(read_weights=lambda run, version: data)
    monkeypatch.setattr("azq.console.remote.client_of", lambda settings, url: nullcontext(daemon))
    words = ["weights", "export", "--run", name, "--version", "7", "--format", "onnx", "--out", str(out)]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    meta = from_bytes(data)[1]
    rules = games.load(meta.game, **meta.params)
    module = restore(data, rules)
    planes, scalars = unpack(torch.from_numpy(probe_positions(rules, max(BATCHES))), module.spec)
    with torch.inference_mode():
        wanted = [output.numpy() for output in module(planes, scalars)]
    session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
    for count in BATCHES:
        inputs = {"planes": planes[:count].numpy()} | ({"scalars": scalars[:count].numpy()} if module.spec.scalars else {})
        for found, told in zip(session.run(["logits", "values"], inputs), wanted, strict=True):
            assert found.shape == (count, told.shape[1])
            assert np.abs(found - told[:count]).max() <= OFF * max(1, np.abs(told).max())
