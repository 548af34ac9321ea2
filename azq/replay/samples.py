"""Training samples: observation, policy target, value target, legal actions, and the further targets that a game declares.

One for each searched ply of a finished game; games that break the rules are refused.

Letters: N samples, G games, T plies, P bytes of a packed observation (in returns: players), A actions, V values, M = ceil(A / 8) bytes of
a mask.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from azq.config import LearnerConfig
from azq.errors import IllegalActionError, WireError
from azq.wire.arrays import arrays_of
from azq.wire.messages import SampleEvent

JOINT_GAMES = 32  # checked together at best: enough to share numpy's calls, few enough to stay in the cache
POLICY_TOLERANCE = 0.02001  # of a sum; float16 rounds each of its terms


class Declared(Protocol):
    """A game's declared targets; `azq._core.Game` fulfils it."""

    def outcome_combination(self) -> tuple[NDArray[np.float32], float] | None: ...
    def num_hidden(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of samples: how values are made, and optional ones, absent where 0 or False."""

    played: bool = False
    margin: bool = False
    outcomes: int = 0  # K
    hidden: int = 0  # F facts, packed in ceil(F / 8) bytes
    root_value_fraction: float = 0.0  # both as in `LearnerConfig`
    td_lambda: float = 1.0

    @classmethod
    def of(cls, game: Declared, auxiliary: Sequence[str], learner: LearnerConfig | None = None) -> Columns:
        """Those of a network's auxiliary heads, the outcomes wherever the game has them, and a learner's value, else the plain result."""
        combination = game.outcome_combination()
        outcomes = len(combination[0]) if combination else 0
        hidden = game.num_hidden() if "hidden" in auxiliary else 0
        optional = ("advantage" in auxiliary, "margin" in auxiliary, outcomes, hidden)
        if learner is None:
            return cls(*optional)
        return cls(*optional, learner.root_value_fraction, learner.td_lambda)

    def shapes(self) -> dict[str, tuple[type[np.generic], tuple[int, ...]]]:
        """Element type and shape of one sample's entry, by the name of each column that is there."""
        shapes: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {}
        if self.played:
            shapes["played"] = (np.uint16, ())
        if self.margin:
            shapes["margin"] = (np.float32, ())
        if self.outcomes:
            shapes["outcomes"] = (np.float32, (self.outcomes,))
        if self.hidden:
            shapes["hidden"] = (np.uint8, ((self.hidden + 7) // 8,))
        return shapes


NO_COLUMNS = Columns()


class Rules(Declared, Protocol):
    """The methods of a game that sampling needs; `azq._core.Game` fulfils it."""

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
    played: NDArray[np.uint16] | None = None  # (N,) the action
    margin: NDArray[np.float32] | None = None  # (N,) of the player to move
    outcomes: NDArray[np.float32] | None = None  # (N, K) of the player to move
    hidden: NDArray[np.uint8] | None = None  # (N, ceil(F / 8)) facts hidden from the player to move, little bit order
    marks: NDArray[np.uint32] | None = None  # (N,) of who made it, by `mark_of`, and a bit at each game's first

    def __len__(self) -> int:
        return len(self.packed)

    def part(self, begin: int, end: int) -> Samples:
        """Those from `begin` to before `end`, in the same memory."""
        columns = ((column.name, getattr(self, column.name)) for column in fields(self))
        parts: dict[str, Any] = {name: None if column is None else column[begin:end] for name, column in columns}
        return Samples(**parts)


def count_samples(event: SampleEvent) -> int:
    """Plies of a game that carry targets."""
    return int(np.count_nonzero(np.frombuffer(event.record.simulations, "<u2")))


def count_trained(game: Rules, event: SampleEvent) -> int:
    """Samples that `samples_of` makes of a game it accepts."""
    return 0 if game.targets(np.frombuffer(event.record.actions, "<u2"))["truncated"] else count_samples(event)


def mark_of(worker: str) -> int:
    """A worker as 31 bits, kept beside each sample of a window; never 0."""
    return zlib.crc32(worker.encode()) >> 1 or 1


def mean_weight_version(*events: SampleEvent) -> float:
    """Mean weight version behind the searched plies of games; 0 without any."""
    versions = np.frombuffer(b"".join(event.record.weight_versions for event in events), "<u4")
    simulations = np.frombuffer(b"".join(event.record.simulations for event in events), "<u2")
    searched = versions[simulations > 0]
    return float(searched.mean()) if len(searched) else 0.0


@dataclass(frozen=True, slots=True)
class SearchedPlies:
    """The searched plies of several games, one game behind the other."""

    of: NDArray[np.intp]  # (N,) number of the game among them
    ply: NDArray[np.intp]  # (N,) counted through all of them
    mover: NDArray[np.intp]  # (N,)

    def where(self, mask: NDArray[np.bool_]) -> SearchedPlies:
        """The plies of a mask (N,)."""
        return SearchedPlies(self.of[mask], self.ply[mask], self.mover[mask])


@dataclass(frozen=True, slots=True)
class _Played:
    """One game: its event's arrays over T plies, and the rules' replay of its actions."""

    name: str
    actions: NDArray[np.uint16]
    policies: NDArray[np.float16]
    root_values: NDArray[np.float32]
    simulations: NDArray[np.uint16]
    packed: NDArray[np.uint8]
    legal: NDArray[np.uint8]
    players: NDArray[np.int8]
    returns: NDArray[np.float32]
    targets: Mapping[str, Any]


def samples_of(game: Rules, events: Sequence[SampleEvent], columns: Columns = NO_COLUMNS) -> tuple[Samples, list[int]]:
    """The samples of at least one finished game, in their order, and how many each game gave; checked and put together in one go.

    Value target = (1 - root_value_fraction) * what came after + root_value_fraction * the search's root value, where what came after is the
    game's result, or `lambda_returns` on the way there. A game that a safety cap ended gives none: it has no result.
    Raises `WireError` where the first game found to be wrong contradicts itself or the rules, `IllegalActionError` for an action the rules
    forbid.
    """
    games = [_play(game, event) for event in events]
    rows = _searched(games)
    policies = np.concatenate([played.policies for played in games])[rows.ply]
    legal = np.concatenate([played.legal for played in games])[rows.ply]
    root_values = np.concatenate([played.root_values for played in games])[rows.ply]
    _check_targets(games, rows, policies, legal, root_values)
    if any(played.targets["truncated"] for played in games):
        whole = ~np.array([played.targets["truncated"] for played in games])[rows.of]
        rows, policies, legal, root_values = rows.where(whole), policies[whole], legal[whole], root_values[whole]
    values = (1.0 - columns.root_value_fraction) * _outcome(games, rows, root_values, columns) + columns.root_value_fraction * root_values
    samples = Samples(
        packed=np.concatenate([played.packed for played in games])[rows.ply],
        policies=policies,
        values=values.astype(np.float32),
        masks=np.packbits(legal, axis=1, bitorder="little"),
        marks=_marks(events, rows.of),
        **_optional(games, rows, columns),
    )
    return samples, np.bincount(rows.of, minlength=len(games)).tolist()


def _outcome(games: Sequence[_Played], rows: SearchedPlies, root_values: NDArray[np.float32], columns: Columns) -> NDArray[np.floating]:
    """Value targets (N, V) without the search's share, as each row's mover sees them."""
    returns = np.stack([played.returns for played in games])
    if columns.td_lambda == 1.0:
        return seat_values(returns, rows.mover, root_values.shape[1], rows.of)
    return lambda_returns(returns, root_values, rows, columns.td_lambda)


def _marks(events: Sequence[SampleEvent], of: NDArray[np.intp]) -> NDArray[np.uint32]:
    marks = np.array([mark_of(event.worker) << 1 for event in events], np.uint32)[of]
    marks[np.diff(of, prepend=-1) != 0] |= np.uint32(1)
    return marks


def _play(game: Rules, event: SampleEvent) -> _Played:
    record, name = event.record, f"game {event.record.uid} of {event.worker}"
    arrays = arrays_of(record, game.num_distinct_actions(), game.value_size(), name)
    actions = arrays["actions"]
    if record.uid < 1 or not len(actions):
        raise WireError(f"{name} has {len(actions)} plies; numbers and plies count from 1")
    packed, legal, players, returns = game.replay(actions)
    _check_returns(name, event.returns, returns)
    return _Played(
        name=name,
        actions=actions,
        policies=arrays["policies"],
        root_values=arrays["root_values"],
        simulations=arrays["simulations"],
        packed=packed,
        legal=legal,
        players=players,
        returns=returns,
        targets=game.targets(actions),
    )


def _searched(games: Sequence[_Played]) -> SearchedPlies:
    plies = np.flatnonzero(np.concatenate([played.simulations for played in games]))
    of = np.repeat(np.arange(len(games)), [len(played.actions) for played in games])[plies]
    movers = np.concatenate([played.players for played in games])[plies].astype(np.intp)
    for row in np.flatnonzero(movers < 0)[:1]:
        first = sum(len(played.actions) for played in games[: of[row]])
        raise WireError(f"{games[of[row]].name} has a target at ply {plies[row] - first}, where chance acts")
    return SearchedPlies(of, plies, movers)


def _optional(games: Sequence[_Played], rows: SearchedPlies, columns: Columns) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    if columns.played:
        arrays["played"] = np.concatenate([played.actions for played in games])[rows.ply]
    if columns.margin:
        arrays["margin"] = np.stack([played.targets["margins"] for played in games])[rows.of, rows.mover]
    if columns.outcomes:
        arrays["outcomes"] = np.stack([played.targets["outcomes"] for played in games])[rows.of, rows.mover]
    if columns.hidden:
        hidden = np.concatenate([played.targets["hidden"] for played in games])[rows.ply]
        arrays["hidden"] = np.packbits(hidden, axis=1, bitorder="little")
    return arrays


def _check_returns(name: str, claimed: tuple[float, ...], returns: NDArray[np.float32]) -> None:
    if claimed == tuple(returns.tolist()):
        return
    with np.errstate(over="ignore"):  # what was written with more digits than a float32 has is rounded first
        rounded = np.asarray(claimed, np.float32)
    if not np.array_equal(rounded, returns):
        raise WireError(f"{name} claims returns {claimed}, its actions give {tuple(returns.tolist())}")


def _check_targets(
    games: Sequence[_Played], rows: SearchedPlies, policies: NDArray[np.float16], legal: NDArray[np.uint8], root_values: NDArray[np.float32]
) -> None:
    # Few actions have a probability, and float16 is slow to compute with: only entries that are not zero are checked.
    entries = np.flatnonzero(policies.view(np.uint16) != 0)
    row = entries // policies.shape[1]
    shares = policies.ravel()[entries].astype(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN is no more than another wrong target
        sums = np.bincount(row, shares, minlength=len(policies))
    # What is not finite makes its sum so, and then no comparison holds.
    even = np.abs(sums - 1.0) <= POLICY_TOLERANCE
    even[row[shares < 0]] = False
    _name_first(games, rows, ~even, "a policy target that is no distribution")
    _name_first(games, rows, row[(legal.ravel()[entries] == 0) & (shares != 0)], "a policy target on an illegal action")
    within: NDArray[np.bool_] = np.all(np.abs(root_values) <= 1.001, axis=1)
    _name_first(games, rows, ~within, "a root value outside [-1, 1]")


def _name_first(games: Sequence[_Played], rows: SearchedPlies, bad: NDArray[Any], what: str) -> None:
    """Raises `WireError` for the game of the first row that a mask (N,) or a list of rows names, if any."""
    named = rows.of[bad]
    if len(named):
        raise WireError(f"{games[named[0]].name} has {what}")


@dataclass(frozen=True, slots=True)
class Judged:
    """Games, accepted or refused."""

    samples: list[Samples] = field(default_factory=list)  # of the accepted ones, in their order
    counts: dict[int, int] = field(default_factory=dict)  # uid of each accepted game -> samples that it gives
    refused: dict[int, str] = field(default_factory=dict)  # uid -> reason


def judge(game: Rules, events: Sequence[SampleEvent], columns: Columns = NO_COLUMNS) -> Judged:
    """Samples of all games that `samples_of` accepts, many at a time; no game occurs twice among the events."""
    judged = Judged()
    for start in range(0, len(events), JOINT_GAMES):
        _judge(judged, game, events[start : start + JOINT_GAMES], columns)
    return judged


def _judge(judged: Judged, game: Rules, events: Sequence[SampleEvent], columns: Columns) -> None:
    try:
        samples, counts = samples_of(game, events, columns)
    except (WireError, IllegalActionError) as error:
        if len(events) == 1:
            (event,) = events
            judged.refused[event.record.uid] = str(error)
            return
        for half in (events[: len(events) // 2], events[len(events) // 2 :]):
            _judge(judged, game, half, columns)
        return
    judged.samples.append(samples)
    judged.counts.update(zip((event.record.uid for event in events), counts, strict=True))


def seat_values(
    returns: NDArray[np.floating], movers: NDArray[np.intp], value_size: int, of: NDArray[np.intp] | None = None
) -> NDArray[np.floating]:
    """Results (N, V) of games as their movers (N,) see them: their own alone (V = 1), or each seat's in turn, their own first.

    `returns` are those of one game, (P,), or of several, (G, P), with the game `of` (N,) each row.
    """
    seats = (movers[:, None] + np.arange(value_size)) % returns.shape[-1]
    values: NDArray[np.floating] = returns[seats] if of is None else returns[of[:, None], seats]
    return values


def values_by_seat(values: NDArray[np.floating], movers: NDArray[np.intp], players: int) -> NDArray[np.float64]:
    """Values (N, V) as their movers (N,) see them, as each seat's, (N, P): the way back from `seat_values`."""
    if values.shape[1] < players:  # one value of two players, whose sum is zero
        values = np.concatenate([values, -values], axis=1)
    by_seat = np.empty((len(values), players))
    np.put_along_axis(by_seat, (movers[:, None] + np.arange(players)) % players, values, axis=1)
    return by_seat


def lambda_returns(
    returns: NDArray[np.float32],
    root_values: NDArray[np.float32],
    rows: SearchedPlies,
    td_lambda: float,
) -> NDArray[np.floating]:
    """TD(lambda) returns (N, V) of searched plies as their movers see them (Sutton and Barto 2018, section 12.1).

    A ply is worth lambda of what the game's next searched ply is worth and the rest of what the search thought there, `root_values` (N, V);
    the last one is worth the game's result, of `returns` (G, P).
    """
    players, every = returns.shape[1], np.arange(len(rows.of))
    thought = values_by_seat(root_values, rows.mover, players)
    last = np.flatnonzero(np.diff(rows.of, append=-1))
    worth = np.empty_like(thought)
    worth[last] = returns[rows.of[last]]
    left = np.repeat(last, np.diff(last, prepend=-1)) - every  # searched plies of the game that are still to come
    # All games at once, from their ends: each pass of the loop is over the rows with as many plies to come.
    for those in np.split(np.argsort(left, kind="stable"), np.cumsum(np.bincount(left))[:-1])[1:]:
        worth[those] = td_lambda * worth[those + 1] + (1.0 - td_lambda) * thought[those + 1]
    return seat_values(worth, rows.mover, root_values.shape[1], every)
