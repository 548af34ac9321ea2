"""Doubles around a learner: a store in memory, a tracker that remembers, a game that has everything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from azq import games
from azq.config import LearnerConfig, NetworkConfig
from azq.errors import StoreError
from azq.learner.data.batches import Batch
from azq.learner.step.loss import Symmetries
from azq.learner.step.trainer import Trainer
from azq.nets import NetSpec, build
from azq.replay.samples import Samples
from azq.store.objects import ObjectPrefix


def trainer_of(network: NetworkConfig, game: str = "connect_four", *, seed: int = 1, symmetries: bool = False, **options: Any) -> Trainer:
    """A trainer of a game's network on the CPU, in float32 unless `options` of the learner say otherwise."""
    rules, cpu = games.load(game), torch.device("cpu")
    spec, config = NetSpec.of(rules), LearnerConfig(**{"precision": "float32", **options})
    return Trainer(build(network, spec, seed=seed), spec, config, cpu, Symmetries(rules, cpu) if symmetries else None)


def train(trainer: Trainer, samples: Samples, rng: np.random.Generator) -> None:
    """One step on samples; `rng` draws their symmetries."""
    count = trainer.num_symmetries
    trainer.train_on(Batch(samples, rng.integers(0, count, len(samples), dtype=np.uint8) if count > 1 else None), 0.0)


class DictStore:
    """Blobs in a dictionary."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> tuple[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest, f"memory://{digest}"

    def get(self, uri: str, sha256: str) -> bytes:
        if sha256 not in self.blobs:
            raise StoreError(f"no blob {uri}")
        return self.blobs[sha256]

    def delete(self, uri: str) -> None:
        self.blobs.pop(uri.removeprefix("memory://"), None)


class DictPrefix(ObjectPrefix):
    """Objects in a dictionary; `away` makes it a store that nobody reaches."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.away = False

    def names(self, folder: str = "") -> list[str]:
        self._reach()
        return [name for name in self.objects if name.startswith(folder)]

    def folders(self) -> list[str]:
        self._reach()
        return sorted({name.partition("/")[0] for name in self.objects if "/" in name})

    def write(self, name: str, data: bytes) -> None:
        self._reach()
        self.objects[name] = data

    def read(self, name: str) -> bytes | None:
        self._reach()
        return self.objects.get(name)

    def remove(self, name: str) -> None:
        self._reach()
        self.objects.pop(name, None)

    def _reach(self) -> None:
        if self.away:
            raise StoreError("the store is away")


class ListTracker:
    """Remembers all figures."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, float]]] = []

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.seen.append((step, dict(values)))

    def close(self) -> None: ...


class SecretSum:
    """A game with a secret a round, for any number of players: chance draws it, then each in turn names 0..2, and high sums win.

    The secret (0..3) is hidden from all until the next round shows it. With two players it has outcomes (won, lost), with more a value
    per seat. A first secret of 3 stands for a game that a safety cap ends.
    """

    name = "secret_sum"
    rounds = 2

    def __init__(self, players: int) -> None:
        self.players = players

    def num_players(self) -> int:
        return self.players

    def num_distinct_actions(self) -> int:
        return 3

    def observation_planes(self) -> tuple[int, int, int]:
        return (self.players, 1, 7)  # per seat, the sum so far (0..4); of the mover's plane, the last two tell a secret shown

    def num_scalars(self) -> int:
        return 1

    def packed_size(self) -> int:
        return (7 * self.players + 7) // 8 + 1

    def value_size(self) -> int:
        return 1 if self.players == 2 else self.players

    def outcome_combination(self) -> tuple[NDArray[np.float32], float] | None:
        return (np.array([1, -1], np.float32), 0.0) if self.players == 2 else None

    def has_margin(self) -> bool:
        return True

    def num_hidden(self) -> int:
        return 4

    def action_layout(self) -> str:
        return ""

    def token_groups(self) -> dict[str, NDArray[np.int32]]:
        bits = np.arange(7 * self.players, dtype=np.int32)
        return {"sums": bits.reshape(self.players, 7), "shown": bits[5:7, None]}

    def num_symmetries(self) -> int:
        return 1

    def action_permutation(self, symmetry: int) -> NDArray[np.int32]:
        return np.arange(3, dtype=np.int32)

    def plane_permutation(self, symmetry: int) -> NDArray[np.int32]:
        return np.arange(7, dtype=np.int32)

    def new_initial_state(self) -> SecretSumState:
        return SecretSumState(self)

    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
        state, packed, masks, movers = self.new_initial_state(), [], [], []
        for action in actions:
            mover = state.current_player()
            movers.append(mover)
            packed.append(state.packed_observation() if mover >= 0 else np.zeros(self.packed_size(), np.uint8))
            masks.append(np.full(3, mover >= 0, np.uint8))
            state.apply_action(int(action))
        return np.array(packed), np.array(masks), np.array(movers, np.int8), np.array(state.returns(), np.float32)

    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]:
        state, secrets = self.new_initial_state(), []
        for action in actions:
            secrets.append(np.eye(4, dtype=np.uint8)[state.secrets[-1]] if state.current_player() >= 0 else np.zeros(4, np.uint8))
            state.apply_action(int(action))
        returns = np.array(state.returns(), np.float32)
        return {
            "margins": np.array(state.sums, np.float32) / 4,
            "outcomes": np.stack([returns > 0, returns < 0], axis=1).astype(np.float32),
            "hidden": np.array(secrets),
            "truncated": state.secrets[0] == 3,
        }


class SecretSumState:
    """A position of `SecretSum`."""

    def __init__(self, game: SecretSum) -> None:
        self.game = game
        self.history: list[int] = []
        self.sums = [0] * game.players
        self.secrets: list[int] = []

    def is_terminal(self) -> bool:
        return len(self.history) == self.game.rounds * (self.game.players + 1)

    def current_player(self) -> int:
        return -4 if self.is_terminal() else len(self.history) % (self.game.players + 1) - 1

    def is_chance_node(self) -> bool:
        return self.current_player() == -1

    def legal_actions(self) -> list[int]:
        return [0, 1, 2, 3] if self.is_chance_node() else [0, 1, 2]

    def apply_action(self, action: int) -> None:
        mover = self.current_player()
        if mover >= 0:
            self.sums[mover] += action
        else:
            self.secrets.append(action)
        self.history.append(action)

    def returns(self) -> list[float]:
        """Own sum less the mean of the others', in [-1, 1]."""
        others = [(sum(self.sums) - own) / (self.game.players - 1) for own in self.sums]
        return [(own - other) / 4 for own, other in zip(self.sums, others, strict=True)]

    def packed_observation(self) -> NDArray[np.uint8]:
        mover, players = self.current_player(), self.game.players
        planes = np.zeros((players, 7), np.uint8)
        for seat in range(players):
            planes[seat, self.sums[(mover + seat) % players]] = 1
        shown = self.secrets[:-1]
        planes[0, 5:] = [len(shown), shown[-1] > 1 if shown else 0]
        return np.append(np.packbits(planes, bitorder="little"), np.uint8(len(self.history)))
