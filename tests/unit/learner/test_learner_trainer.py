"""The trainer fits a planted function, turns samples by the game's symmetries, and resumes bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from learner_doubles import train, trainer_of
from replay_games import play_game, samples_of_one

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.errors import WeightsError
from azq.learner import checkpoint
from azq.learner.checkpoint import Checkpoint, TrainState
from azq.learner.data.batches import Batch
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, WeightsMeta, build, to_bytes, unpack
from azq.replay.samples import Samples

CPU = torch.device("cpu")
NETWORK = NetworkConfig(blocks=1, channels=16)


def spec_of(name: str) -> NetSpec:
    return NetSpec.of(games.load(name))


def trainer_for(name: str, **options: Any) -> Trainer:
    return trainer_of(NETWORK, name, **{"warmup_steps": 5, "learning_rate": 5e-3, **options})


def planted(spec: NetSpec, count: int, seed: int) -> Samples:
    """Policy: the column whose cell in the top row of plane 0 is set first, else column 0; value: is the centre cell of plane 1 set."""
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (count, spec.packed_size), dtype=np.uint8)
    planes, _ = unpack(torch.from_numpy(packed), spec)
    top = planes[:, 0, 0, :].numpy()
    policies = np.zeros((count, spec.num_actions), np.float16)
    policies[np.arange(count), top.argmax(axis=1)] = 1
    values = planes[:, 1, spec.rows // 2, spec.cols // 2].numpy()[:, None] * 2 - 1
    masks = np.packbits(np.ones((count, spec.num_actions), np.uint8), axis=1, bitorder="little")
    return Samples(packed, policies, values.astype(np.float32), masks)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_fits_a_planted_function_on_unseen_samples(precision):
    spec = spec_of("connect_four")
    trainer = trainer_for("connect_four", precision=precision)
    rng = np.random.default_rng(0)
    for seed in range(250):
        train(trainer, planted(spec, 64, seed), rng)
    fresh = planted(spec, 512, 10_000)
    with torch.no_grad():
        logits, values = trainer.averaged(*unpack(torch.from_numpy(fresh.packed), spec))
    hits = (logits.argmax(1).numpy() == fresh.policies.argmax(1)).mean()
    error = float(((values.numpy() - fresh.values) ** 2).mean())
    assert hits > 0.9
    assert error < 0.15
    trainer.reset_losses()
    train(trainer, fresh, rng)
    losses = trainer.mean_losses()
    assert losses.steps == 1
    assert losses.policy < 0.4
    assert losses.value < 0.15


@pytest.mark.parametrize(("name", "count"), [("connect_four", 2), ("tic_tac_toe", 8)])
def test_every_symmetry_maps_a_game_onto_a_game(name, count):
    game = games.load(name)
    spec, symmetries = NetSpec.of(game), Symmetries(game, CPU)
    assert symmetries.count == count
    event = play_game(game, 4)
    actions = np.frombuffer(event.record.actions, "<u2")
    samples = samples_of_one(game, event, 0.0)
    for symmetry in range(symmetries.count):
        state, chosen = game.new_initial_state(), torch.tensor([symmetry])
        for ply, action in enumerate(actions):
            planes, _ = unpack(torch.from_numpy(samples.packed[ply : ply + 1]), spec)
            image = symmetries.planes(planes, chosen)[0].numpy()
            assert np.array_equal(image, np.asarray(state.observation_tensor()).reshape(image.shape))
            one_hot = torch.zeros(1, spec.num_actions)
            one_hot[0, int(action)] = 1
            state.apply_action(int(symmetries.actions(one_hot, chosen).argmax()))


def test_training_with_symmetries_learns_the_mirror_of_what_it_saw():
    game = games.load("connect_four")
    spec = NetSpec.of(game)
    trainer = trainer_for("connect_four", symmetries=True, ema_decay=0.0)
    state = game.new_initial_state()
    state.apply_action(0)
    packed = np.repeat(state.packed_observation()[None], 32, 0)
    policies = np.zeros((32, 7), np.float16)
    policies[:, 1] = 1
    masks = np.full((32, 1), 0x7F, np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(40):
        train(trainer, Samples(packed, policies, np.zeros((32, 1), np.float32), masks), rng)
    mirror = game.new_initial_state()
    mirror.apply_action(6)
    with torch.no_grad():
        logits, _ = trainer.averaged(*unpack(torch.from_numpy(np.asarray(mirror.packed_observation())[None].copy()), spec))
    assert int(logits.argmax()) == 5


def test_resumed_training_equals_uninterrupted_training_bit_for_bit():
    spec = spec_of("tic_tac_toe")
    whole, first = trainer_for("tic_tac_toe", symmetries=True), trainer_for("tic_tac_toe", symmetries=True)
    rng, split = np.random.default_rng(3), np.random.default_rng(3)
    batches = [planted(spec, 32, seed) for seed in range(20)]
    for batch in batches:
        train(whole, batch, rng)
    for batch in batches[:10]:
        train(first, batch, split)
    second = trainer_for("tic_tac_toe", symmetries=True)
    # As they are on disk and on their way to other ranks: row by row, while those in training lie as the convolutions like them.
    assert not first.module.get_parameter("stem.weight").is_contiguous()
    second.load_tensors({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in first.tensors().items()}, first.step)
    for batch in batches[10:]:
        train(second, batch, split)
    ours, theirs = whole.tensors(), second.tensors()
    assert ours.keys() == theirs.keys()
    assert second.step == whole.step
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_is_published_and_kept_does_not_depend_on_the_order_of_memory(tmp_path):
    trainer = trainer_for("tic_tac_toe")
    train(trainer, planted(spec_of("tic_tac_toe"), 32, 1), np.random.default_rng(0))
    last, meta = trainer.averaged, WeightsMeta("tic_tac_toe")
    rowwise = copy.deepcopy(last).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    assert not last.get_parameter("stem.weight").is_contiguous()
    assert rowwise.get_parameter("stem.weight").is_contiguous()
    assert to_bytes(last, meta) == to_bytes(rowwise, meta)
    state = TrainState(checkpoint.SCHEMA, "tic_tac_toe", 1, 32, 0, 0, 0.0, 0.0)
    plain = {name: tensor.contiguous() for name, tensor in trainer.tensors().items()}
    files = [checkpoint.save(tmp_path / str(number), Checkpoint(state, each)) for number, each in enumerate((trainer.tensors(), plain))]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_tensors_of_another_network_are_refused_by_name():
    other = Trainer(build(NetworkConfig(blocks=1, channels=8), spec_of("tic_tac_toe")), spec_of("tic_tac_toe"), LearnerConfig(), CPU)
    with pytest.raises(WeightsError, match="stem"):
        trainer_for("tic_tac_toe").load_tensors(other.tensors(), 1)


def test_divergence_is_an_error_that_names_the_step_and_the_remedy():
    spec = spec_of("tic_tac_toe")
    trainer = trainer_for("tic_tac_toe")
    batch = planted(spec, 8, 0)
    train(trainer, Samples(batch.packed, batch.policies, np.full_like(batch.values, np.inf), batch.masks), np.random.default_rng(0))
    with pytest.raises(WeightsError, match=r"diverged at step 1.*learning_rate"):
        trainer.mean_losses()


def test_a_frozen_trunk_stays_bit_for_bit_while_the_heads_learn():
    trainer, spec = trainer_for("connect_four", freeze="trunk", weight_decay=0.1), spec_of("connect_four")
    before = {name: tensor.clone() for name, tensor in trainer.module.state_dict().items()}
    for seed in range(5):
        train(trainer, planted(spec, 32, seed), np.random.default_rng(0))
    after = trainer.module.state_dict()
    moved = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"policy", "value"}
    again = trainer_for("connect_four", freeze="trunk", weight_decay=0.1)
    again.load_tensors(trainer.tensors(), trainer.step)
    for each in (trainer, again):
        train(each, planted(spec, 32, 99), np.random.default_rng(1))
    assert all(torch.equal(tensor, again.tensors()[name]) for name, tensor in trainer.tensors().items())


@pytest.mark.parametrize(("rows", "most", "sizes"), [(7, 0, [7]), (7, 7, [7]), (7, 3, [2, 2, 3]), (8, 4, [4, 4]), (3, 1, [1, 1, 1])])
def test_a_batch_is_cut_into_as_few_parts_as_fit(rows: int, most: int, sizes: list[int]) -> None:
    batch = Batch(planted(spec_of("connect_four"), rows, 0), np.arange(rows, dtype=np.uint8))
    parts = batch.parts(most)
    assert [len(part) for part in parts] == sizes
    assert np.array_equal(np.concatenate([part.samples.packed for part in parts]), batch.samples.packed)
    assert [int(mark) for part in parts for mark in part.chosen] == list(range(rows))


def test_gradients_of_parts_add_up_to_those_of_the_batch() -> None:
    whole, parts = trainer_for("connect_four"), trainer_for("connect_four", micro_batch=20)
    for seed in range(8):
        for trainer in (whole, parts):
            trainer.train_on(Batch(planted(spec_of("connect_four"), 64, seed)), 0.0)
    for name, tensor in whole.tensors().items():
        assert torch.allclose(tensor, parts.tensors()[name], atol=2e-5), name
    one, other = whole.mean_losses(), parts.mean_losses()
    assert one.policy == pytest.approx(other.policy, rel=1e-4)
    assert one.value == pytest.approx(other.value, rel=1e-4)


NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
OF_ONEDNN = RuntimeError("could not create a primitive")


def crowded(trainer: Trainer, room: int, error: Exception = NO_MEMORY) -> list[int]:
    """Lets a network's passes fail with more samples than there is room for; the sizes that were tried."""
    tried: list[int] = []

    def look(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        tried.append(len(arguments[0]))
        if len(arguments[0]) > room:
            raise error

    inner = trainer.module.forward_all
    trainer.module.forward_all = lambda planes, scalars: (look(trainer.module, (planes,)), inner(planes, scalars))[1]
    return tried


@pytest.mark.parametrize("error", [NO_MEMORY, OF_ONEDNN])
def test_a_step_without_memory_is_taken_again_in_smaller_parts(error: Exception) -> None:
    whole, small = trainer_for("connect_four"), trainer_for("connect_four")
    tried = crowded(small, 20, error)
    for seed in range(2):
        for trainer in (whole, small):
            trainer.train_on(Batch(planted(spec_of("connect_four"), 64, seed)), 0.0)
    assert tried == [64, 32, 16, 16, 16, 16, 16, 16, 16, 16]
    assert (small.step, small.micro_batch, small.errors) == (2, 16, 2)
    assert "16 samples a pass" in small.note
    for name, tensor in whole.tensors().items():
        assert torch.allclose(tensor, small.tensors()[name], atol=2e-5), name


def test_no_memory_for_a_single_sample_ends_training() -> None:
    trainer = trainer_for("connect_four")
    tried = crowded(trainer, 0)
    with pytest.raises(torch.OutOfMemoryError):
        trainer.train_on(Batch(planted(spec_of("connect_four"), 4, 0)), 0.0)
    assert tried == [4, 2, 1]
    assert trainer.step == 0


def test_an_error_that_is_not_about_memory_is_raised_as_it_is() -> None:
    trainer = trainer_for("connect_four")
    trainer.module.forward_all = lambda planes, scalars: (_ for _ in ()).throw(RuntimeError("device-side assert"))
    with pytest.raises(RuntimeError, match="device-side assert"):
        trainer.train_on(Batch(planted(spec_of("connect_four"), 4, 0)), 0.0)
