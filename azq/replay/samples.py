"""A finished game as training samples: observation, policy target, value target and legal actions of each searched ply.

Letters: N samples, T plies, P bytes of a packed observation, A actions, V values, M = ceil(A / 8) bytes of a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from azq.errors import WireError
from azq.wire.messages import SampleEvent


class Rules(Protocol):
    """What sampling asks of a game; `azq._core.Game` fulfils it."""

    def num_distinct_actions(self) -> int: ...
    def num_players(self) -> int: ...
    def packed_size(self) -> int: ...
    def value_size(self) -> int: ...
    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """N samples in flat arrays."""

    packed: NDArray[np.uint8]  # (N, P)
    policies: NDArray[np.float16]  # (N, A), sums to 1 over legal actions
    values: NDArray[np.float32]  # (N, V) for the player to move (V = 1) or per seat
    masks: NDArray[np.uint8]  # (N, M) legal actions, little bit order

    def __len__(self) -> int:
        return len(self.packed)


@dataclass(frozen=True, slots=True)
class _Arrays:
    actions: NDArray[np.uint16]
    policies: NDArray[np.float16]
    root_values: NDArray[np.float32]
    simulations: NDArray[np.uint16]


def samples_of(game: Rules, event: SampleEvent, root_value_fraction: float) -> Samples:
    """The samples of a finished game; value target = (1 - fraction) * result + fraction * the search's root value.

    Raises `WireError` where the event contradicts itself or the rules, `IllegalActionError` for an action the rules forbid.
    """
    arrays = _unpack(event, game.num_distinct_actions(), game.value_size())
    packed, legal, players, returns = game.replay(arrays.actions)
    name = f"game {event.record.uid} of {event.worker}"
    if not np.array_equal(np.asarray(event.returns, np.float32), returns):
        raise WireError(f"{name} claims returns {event.returns}, its actions give {tuple(returns.tolist())}")
    chosen = np.flatnonzero(arrays.simulations)
    policies, root_values = arrays.policies[chosen], arrays.root_values[chosen]
    _check_targets(name, policies, legal[chosen], root_values)
    results = _results(returns, players[chosen], game.value_size())
    values = (1.0 - root_value_fraction) * results + root_value_fraction * root_values
    return Samples(packed[chosen], policies, values.astype(np.float32), np.packbits(legal[chosen], axis=1, bitorder="little"))


def mean_weight_version(event: SampleEvent) -> float:
    """Mean weight version behind a game's searched plies; 0 without any."""
    versions = np.frombuffer(event.record.weight_versions, "<u4")[np.frombuffer(event.record.simulations, "<u2") > 0]
    return float(versions.mean()) if len(versions) else 0.0


def _unpack(event: SampleEvent, num_actions: int, value_size: int) -> _Arrays:
    record = event.record
    plies = len(record.actions) // 2
    wanted = {
        "actions": plies * 2,
        "policies": plies * num_actions * 2,
        "root_values": plies * value_size * 4,
        "simulations": plies * 2,
        "weight_versions": plies * 4,
    }
    for name, size in wanted.items():
        if len(getattr(record, name)) != size:
            raise WireError(
                f"game {record.uid} of {event.worker}: {name} has {len(getattr(record, name))} bytes, {plies} plies need {size}"
            )
    if record.uid < 1 or not plies:
        raise WireError(f"game {record.uid} of {event.worker} has {plies} plies; numbers and plies count from 1")
    return _Arrays(
        np.frombuffer(record.actions, "<u2"),
        np.frombuffer(record.policies, "<f2").reshape(plies, num_actions),
        np.frombuffer(record.root_values, "<f4").reshape(plies, value_size),
        np.frombuffer(record.simulations, "<u2"),
    )


def _check_targets(name: str, policies: NDArray[np.float16], legal: NDArray[np.uint8], root_values: NDArray[np.float32]) -> None:
    sums = policies.sum(axis=1, dtype=np.float32)
    if not (np.isfinite(policies).all() and (policies >= 0).all() and np.allclose(sums, 1.0, atol=0.02)):
        raise WireError(f"{name} has a policy target that is no distribution")
    if policies[legal == 0].any():
        raise WireError(f"{name} has a policy target on an illegal action")
    if not (np.isfinite(root_values).all() and (np.abs(root_values) <= 1.001).all()):
        raise WireError(f"{name} has a root value outside [-1, 1]")


def _results(returns: NDArray[np.float32], players: NDArray[np.int8], value_size: int) -> NDArray[np.float32]:
    if value_size == 1:
        return returns[players.astype(np.intp)][:, None]
    return np.broadcast_to(returns, (len(players), value_size))
