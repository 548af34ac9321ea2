"""Compiled passes: used where they are faster, one line and no more where they fail."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import structlog
import torch
from learner_doubles import train, trainer_of

from azq import games
from azq.config import NetworkConfig
from azq.learner.data.batches import Batch
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec
from azq.replay.samples import Samples

SPEC = NetSpec.of(games.load("tic_tac_toe"))


def compiling(**options: Any) -> Trainer:
    return trainer_of(NetworkConfig(blocks=1, channels=8), "tic_tac_toe", **{"batch_size": 8, "compile": True, **options})


def samples(seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (8, SPEC.packed_size), dtype=np.uint8)
    policies = rng.dirichlet(np.ones(SPEC.num_actions), 8).astype(np.float16)
    masks = np.packbits(np.ones((8, SPEC.num_actions), np.uint8), axis=1, bitorder="little")
    return Samples(packed, policies, rng.uniform(-1, 1, (8, 1)).astype(np.float32), masks)


class Compiler:
    """Stands for `torch.compile`: calls what it is given, later or sooner, or fails at the first call as an absent compiler does."""

    def __init__(self, pause_s: float = 0.0, error: Exception | None = None) -> None:
        self.pause_s, self.error, self.calls = pause_s, error, 0
        self.dynamic: list[bool] = []

    def __call__(self, plain: Any, *, dynamic: bool) -> Any:
        self.dynamic.append(dynamic)

        def compiled(*args: Any) -> Any:
            self.calls += 1
            if self.error is not None:
                raise self.error
            time.sleep(self.pause_s)
            return plain(*args)

        return compiled


@pytest.fixture
def compiler(monkeypatch):
    made = Compiler()
    monkeypatch.setattr(torch, "compile", made)
    return made


def test_what_is_faster_is_used(compiler, monkeypatch):
    monkeypatch.setattr("azq.learner.step.compiling._measured", lambda ways, *rest: (2.0, 1.0))
    trainer = compiling()
    with structlog.testing.capture_logs() as lines:
        train(trainer, samples(), np.random.default_rng(0))
    assert compiler.calls == 1
    assert [line["used"] for line in lines if line["event"] == "compiled"] == [True]
    train(trainer, samples(), np.random.default_rng(0))
    assert (compiler.calls, compiler.dynamic, trainer.note) == (2, [False], "")


def test_what_is_slower_is_not_used(compiler):
    compiler.pause_s = 0.02
    trainer = compiling(ranks=2)
    train(trainer, samples(), np.random.default_rng(0))
    measured = compiler.calls
    train(trainer, samples(), np.random.default_rng(0))
    assert (compiler.calls, compiler.dynamic, trainer.note) == (measured, [True], "")


def test_a_compiler_that_fails_is_one_line_and_a_note_and_training_goes_on(compiler):
    compiler.error = RuntimeError("Failed to find C compiler\nplease install one")
    trainer, plain = compiling(), compiling(compile=False)
    with structlog.testing.capture_logs() as lines:
        for step in range(3):
            train(trainer, samples(step), np.random.default_rng(0))
            plain.train_on(Batch(samples(step)), 0.0)
    assert [line["reason"] for line in lines if line["event"] == "compile_failed"] == ["RuntimeError: Failed to find C compiler"]
    assert trainer.note == "trains op by op: RuntimeError: Failed to find C compiler"
    ours, theirs = trainer.tensors(), plain.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)  # measuring left nothing behind


@pytest.mark.release
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_steps_are_those_op_by_op(monkeypatch):
    measured = []
    monkeypatch.setattr("azq.learner.step.compiling._measured", lambda ways, *rest: measured.append(ways) or (2.0, 1.0))
    compiled, plain = compiling(), compiling()
    plain._may_compile = False
    for step in range(3):
        train(compiled, samples(step), np.random.default_rng(0))
        train(plain, samples(step), np.random.default_rng(0))
    assert len(measured) == 1
    assert compiled.note == ""
    ours, theirs = compiled.mean_losses(), plain.mean_losses()
    assert (ours.policy, ours.value) == pytest.approx((theirs.policy, theirs.value), rel=1e-3)
    assert ours.steps == 3
