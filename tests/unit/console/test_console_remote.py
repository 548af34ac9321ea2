"""What commands over REST do on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from msgspec.structs import replace
from typer.testing import CliRunner

from azq import games, pretrained
from azq.cli.app import app
from azq.console.remote import pretrained_text
from azq.nets import from_bytes, restore, unpack
from azq.parts.volunteers.model_maker import probe_positions
from azq.pretrained import MeasuredGrade, MeasuredMatch
from azq.status.schemas import AuditOut

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


def test_a_card_is_told_with_what_was_measured_and_nothing_else() -> None:
    match = MeasuredMatch("rule", 64, 60, 43, 6, 11, 0.761, 0.64, 0.14, "points", 3)
    rated = MeasuredMatch("uct:1000", 64, 100, 79, 4, 17, 0.81, 0.62, 0.147, "result", 2, 252, 165, 338)
    alone = MeasuredMatch("rule", 64, 100, 90, 0, 10, 0.9, 6812.4, 401.2, "points", 1, gap=2691.6, gap_95=511.5)
    grades = [MeasuredGrade(400, 600, 0.0667, "value", 30, 0.05), MeasuredGrade(1, 500, 14.4, "millipoints")]
    card = replace(pretrained.card("connect_four"), matches=[match, rated, alone], grades=grades)
    head, *rest = pretrained_text([card])
    assert head.split(";")[0].split() == ["azq:connect_four", "393", "kB", "kind=resnet", "blocks=4", "channels=48", "parity=True"]
    assert [line.strip() for line in rest] == [
        "mean loss 0.0667 value on 600 positions at 400 simulations, a result class lost in 5.0%",
        "mean loss 14.4 millipoints on 500 positions at 1 simulations",
        "76.1% of 60 games against 2 x rule at 64 simulations, +0.64 +-0.14 points a game",
        "81.0% of 100 games against uct:1000 at 64 simulations, Elo +252 (+165 .. +338)",
        "6,812 +-401 points a game at 64 simulations, +2,692 +-512 over rule in 100 games of the same luck",
    ]


def test_the_audit_is_its_newest_lines_the_oldest_of_them_first(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [AuditOut(at_ms=n, who="anna", what=f"POST /{n}", address="here", status=200, about="", key="") for n in range(150)]
    daemon = SimpleNamespace(audit=lambda: reversed(written))
    monkeypatch.setattr("azq.console.remote.client_of", lambda settings, url: nullcontext(daemon))
    lines = CliRunner().invoke(app, ["events", "--audit"], catch_exceptions=False).output.splitlines()
    assert [line.partition("POST ")[2] for line in lines] == [f"/{n} -> 200" for n in range(50, 150)]
