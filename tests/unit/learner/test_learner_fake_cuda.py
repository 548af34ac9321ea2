"""A learner on a GPU that is not there: every call that names a device names one that torch takes, from the first step to the last."""

from __future__ import annotations

import pytest
import torch
from fake_cuda import FakeCuda
from learner_workplace import run_dry, stopped, turns

from azq.config import LearnerConfig, NetworkConfig
from azq.errors import ConfigError
from azq.learner import checkpoint
from azq.learner.opening import prepare_training
from azq.nets import from_bytes


@pytest.fixture
def cuda(monkeypatch):
    def install(devices: int) -> list[str]:
        fake, chosen = FakeCuda(devices), []
        fake.install(monkeypatch.setattr)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: fake.set_device(device) or chosen.append(str(device)))
        monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
        return chosen

    return install


@pytest.mark.parametrize(
    ("devices", "name", "local", "chosen"),
    [(1, "auto", 0, "cuda:0"), (1, "cuda", 0, "cuda:0"), (2, "cuda", 1, "cuda:1"), (2, "cuda", 2, "cuda:0"), (2, "cuda:1", 0, "cuda:1")],
)
def test_a_device_is_chosen_with_its_number_and_made_the_threads_own(cuda, devices, name, local, chosen):
    asked = cuda(devices)
    assert str(prepare_training(LearnerConfig(device=name), local)) == chosen
    assert asked == [chosen]
    assert torch.backends.cudnn.benchmark


def test_ranks_whose_batches_change_search_for_no_kernels_and_an_absent_gpu_is_named(cuda):
    cuda(2)
    prepare_training(LearnerConfig(device="cuda", ranks=2), 1)
    assert not torch.backends.cudnn.benchmark
    with pytest.raises(ConfigError, match="'cuda:2' is not on this host"):
        prepare_training(LearnerConfig(device="cuda:2"))


def test_each_rank_takes_its_own_of_the_devices_that_are_named_and_rank_0_the_first(cuda):
    asked = cuda(3)
    config = LearnerConfig(devices=("cuda:2", "cuda:0"))
    assert [str(prepare_training(config, local)) for local in range(config.ranks)] == ["cuda:2", "cuda:0"] == asked
    with pytest.raises(ConfigError, match="names 2 devices, and this is process 2 of its host"):
        prepare_training(config, 2)


def test_rank_0_names_every_device_of_its_host_that_is_not_there(cuda):
    asked = cuda(1)
    with pytest.raises(ConfigError, match=r"learner\.devices names cuda:1, cuda:3, not on this host"):
        prepare_training(LearnerConfig(devices=("cuda:0", "cuda:1", "cuda:3")), 0)
    assert not asked


@pytest.mark.parametrize("options", [{}, {"compile": True}])
def test_it_learns_publishes_drains_and_resumes(cuda, place, monkeypatch, options):
    asked = cuda(1)
    monkeypatch.setattr(torch, "compile", lambda plain, *, dynamic: plain)
    monkeypatch.setattr("torch._dynamo.reset", lambda: None)
    monkeypatch.setattr("azq.learner.learner.STATUS_EVERY_S", 0.0)
    network = NetworkConfig(blocks=2, channels=8)
    learner = place.learner(device="auto", network=network, **options)
    assert str(learner.trainer.device) == "cuda:0"
    place.finish_games(1, 30)
    run_dry(learner)
    learner.publish()
    place.finish_games(31, 60)
    turns(learner, 3)
    learner.run(stopped())
    _, meta = from_bytes(place.store.blobs[place.weights()[-1].sha256])
    assert (meta.network["blocks"], meta.step) == (2, learner.status().step)
    assert {"phase_wall_backward", "phase_device_backward"} <= learner.shares().keys()
    assert set(asked) == {"cuda:0"}
    again = place.learner(device="cuda", network=network, **options)
    run_dry(again)
    assert again.status().step >= checkpoint.load_newest(place.folder / "checkpoints").state.step > 0
    again.run(stopped())
