"""A finished game as training samples: observation, policy target, value target and legal actions of each searched ply.

Letters: N samples, T plies, P bytes of a packed observation, A actions, V values, M = ceil(A / 8) bytes of a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from azq.errors import WireError
from azq.replay.columns import NO_COLUMNS, NO_REPLY, Columns, Declared
from azq.wire.messages import SampleEvent


class Rules(Declared, Protocol):
    """What sampling asks of a game; `azq._core.Game` fulfils it."""

    def num_distinct_actions(self) -> int: ...
    def num_players(self) -> int: ...
    def packed_size(self) -> int: ...
    def value_size(self) -> int: ...
    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]: ...
    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Samples:
    """N samples in flat arrays."""

    packed: NDArray[np.uint8]  # (N, P)
    policies: NDArray[np.float16]  # (N, A), sums to 1 over legal actions
    values: NDArray[np.float32]  # (N, V) for the player to move, then for the seats after him
    masks: NDArray[np.uint8]  # (N, M) legal actions, little bit order
    reply: NDArray[np.uint16] | None = None  # (N,) what the next other player did best, or NO_REPLY
    margin: NDArray[np.float32] | None = None  # (N,) of the player to move
    outcomes: NDArray[np.float32] | None = None  # (N, K) of the player to move
    hidden: NDArray[np.uint8] | None = None  # (N, ceil(F / 8)) facts hidden from the player to move, little bit order

    def __len__(self) -> int:
        return len(self.packed)


@dataclass(frozen=True, slots=True)
class _Arrays:
    actions: NDArray[np.uint16]
    policies: NDArray[np.float16]
    root_values: NDArray[np.float32]
    simulations: NDArray[np.uint16]


def samples_of(game: Rules, event: SampleEvent, root_value_fraction: float, columns: Columns = NO_COLUMNS) -> Samples:
    """The samples of a finished game; value target = (1 - fraction) * result + fraction * the search's root value.

    None of a game that a safety cap ended: it has no result. `columns` are the optional targets to add.
    Raises `WireError` where the event contradicts itself or the rules, `IllegalActionError` for an action the rules forbid.
    """
    arrays = _unpack(event, game.num_distinct_actions(), game.value_size())
    packed, legal, players, returns = game.replay(arrays.actions)
    name = f"game {event.record.uid} of {event.worker}"
    with np.errstate(over="ignore"):
        claimed = np.asarray(event.returns, np.float32)
    if not np.array_equal(claimed, returns):
        raise WireError(f"{name} claims returns {event.returns}, its actions give {tuple(returns.tolist())}")
    chosen = np.flatnonzero(arrays.simulations)
    movers = players[chosen].astype(np.intp)
    if (movers < 0).any():
        raise WireError(f"{name} has a target at ply {chosen[movers < 0][0]}, where chance acts")
    policies, root_values = arrays.policies[chosen], arrays.root_values[chosen]
    _check_targets(name, policies, legal[chosen], root_values)
    targets = game.targets(arrays.actions)
    if targets["truncated"]:
        chosen, movers, policies, root_values = chosen[:0], movers[:0], policies[:0], root_values[:0]
    results = seat_values(returns, movers, game.value_size())
    values = (1.0 - root_value_fraction) * results + root_value_fraction * root_values
    samples = Samples(packed[chosen], policies, values.astype(np.float32), np.packbits(legal[chosen], axis=1, bitorder="little"))
    return replace(
        samples,
        reply=_replies(arrays, players)[chosen] if columns.reply else None,
        margin=targets["margins"][movers] if columns.margin else None,
        outcomes=targets["outcomes"][movers] if columns.outcomes else None,
        hidden=np.packbits(targets["hidden"][chosen], axis=1, bitorder="little") if columns.hidden else None,
    )


def count_samples(event: SampleEvent) -> int:
    """Plies of a game that carry targets."""
    return int(np.count_nonzero(np.frombuffer(event.record.simulations, "<u2")))


def count_trained(game: Rules, event: SampleEvent) -> int:
    """Samples that `samples_of` makes of a game it accepts."""
    return 0 if game.targets(np.frombuffer(event.record.actions, "<u2"))["truncated"] else count_samples(event)


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
    if not (np.isfinite(policies).all() and (policies >= 0).all() and np.allclose(policies.sum(axis=1, dtype=np.float32), 1.0, atol=0.02)):
        raise WireError(f"{name} has a policy target that is no distribution")
    if policies[legal == 0].any():
        raise WireError(f"{name} has a policy target on an illegal action")
    if not (np.isfinite(root_values).all() and (np.abs(root_values) <= 1.001).all()):
        raise WireError(f"{name} has a root value outside [-1, 1]")


def seat_values(returns: NDArray[np.float32], movers: NDArray[np.intp], value_size: int) -> NDArray[np.float32]:
    """Results (N, V) of a game as its movers (N,) see them: their own alone (V = 1), or each seat's in turn, their own first."""
    seats = (movers[:, None] + np.arange(value_size)) % len(returns)
    return np.take(returns, seats)


def _replies(arrays: _Arrays, players: NDArray[np.int8]) -> NDArray[np.uint16]:
    """For each ply (T,) the best action, by its search, of the next player who is not its mover."""
    best = np.where(arrays.simulations > 0, arrays.policies.argmax(axis=1), NO_REPLY).astype(np.uint16)
    replies = np.full(len(players), NO_REPLY, np.uint16)
    following: tuple[int, int] | None = None  # (player, first ply of his turn) behind the turn at hand
    turn: tuple[int, int] | None = None
    for ply in range(len(players) - 1, -1, -1):
        player = int(players[ply])
        if player < 0:
            continue
        if turn is not None and turn[0] != player:
            following = turn
        turn = (player, ply)
        if following is not None:
            replies[ply] = best[following[1]]
    return replies
