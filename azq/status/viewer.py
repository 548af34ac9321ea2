"""A recorded game ply by ply, as people look at it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from azq.errors import WireError
from azq.games import Game
from azq.wire.arrays import unpack_record
from azq.wire.messages import GameRecord, SampleEvent

TARGETS_SHOWN = 16


@dataclass(frozen=True, slots=True)
class Target:
    """An action's share of the policy target, which is what the search made of its visits."""

    action: int
    text: str
    share: float


@dataclass(frozen=True, slots=True)
class Ply:
    """A position and what was done there."""

    position: str
    player: int  # -1: chance acts
    action: int
    text: str
    simulations: int  # 0: not searched
    weight_version: int
    values: list[float] | None  # the search's value for each seat; None where nothing was searched
    targets: list[Target]  # the largest shares first


@dataclass(frozen=True, slots=True)
class GameView:
    """A whole game; `note` says why positions are missing."""

    uid: int
    game: str
    players: int
    returns: list[float]
    worker: str
    finished_ms: int
    plies: list[Ply]
    final_position: str
    note: str


@dataclass(frozen=True, slots=True)
class GameSummary:
    """A game in a list."""

    uid: int
    plies: int
    returns: list[float]
    weight_versions: tuple[int, int]  # lowest and highest that searched; zeros where nothing was searched
    worker: str
    finished_ms: int


def summary(event: SampleEvent) -> GameSummary:
    """A finished game in a few numbers."""
    versions = np.frombuffer(event.record.weight_versions, "<u4")
    searched = versions[np.frombuffer(event.record.simulations, "<u2") > 0]
    span = (int(searched.min()), int(searched.max())) if len(searched) else (0, 0)
    return GameSummary(event.record.uid, len(event.record.actions) // 2, list(event.returns), span, event.worker, event.finished_ms)


def view(name: str, game: Game | None, event: SampleEvent, note: str = "") -> GameView:
    """The game replayed by its rules; without them actions are numbers. Raises `WireError`, `IllegalActionError`."""
    record = event.record
    num_actions, value_size = _sizes(record) if game is None else (game.num_distinct_actions(), game.value_size())
    arrays = unpack_record(record, num_actions, value_size)
    state = game.new_initial_state() if game is not None else None
    plies = []
    for ply, action in enumerate(arrays["actions"].tolist()):
        player = state.current_player() if state is not None else -1
        simulations = int(arrays["simulations"][ply])
        shares = arrays["policies"][ply].astype(np.float64)
        best = np.argsort(-shares, kind="stable")[:TARGETS_SHOWN]
        name_of = state.action_to_string if state is not None else str
        plies.append(
            Ply(
                position=str(state) if state is not None else "",
                player=player,
                action=action,
                text=name_of(action),
                simulations=simulations,
                weight_version=int(arrays["weight_versions"][ply]),
                values=_by_seat(arrays["root_values"][ply], player, len(event.returns)) if simulations and player >= 0 else None,
                targets=[
                    Target(int(legal), name_of(int(legal)), float(shares[legal])) for legal in best if simulations and shares[legal] > 0
                ],
            )
        )
        if state is not None:
            state.apply_action(action)
    final = str(state) if state is not None else ""
    return GameView(record.uid, name, len(event.returns), list(event.returns), event.worker, event.finished_ms, plies, final, note)


def _sizes(record: GameRecord) -> tuple[int, int]:
    """Actions and values that fit the lengths of a record's arrays."""
    plies = len(record.actions) // 2
    if not plies:
        raise WireError(f"game {record.uid} has no plies")
    actions = 8 * len(record.support) if record.support else len(record.policies) // 2
    return actions // plies, len(record.root_values) // (4 * plies)


def _by_seat(values: NDArray[np.float32], player: int, players: int) -> list[float]:
    """A root's values (V,) seen from the mover, by seat."""
    if len(values) == 1:
        own = float(values[0])
        return [own if seat == player else -own for seat in range(players)]
    return [float(values[(seat - player) % players]) for seat in range(players)]
