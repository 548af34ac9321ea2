"""What finished games say, a row of figures each: hundreds of thousands are some ten MB, however long the games.

Letters: G games, T plies of one, A actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from azq.errors import ConfigError, NotFound
from azq.games import Game
from azq.wire.messages import BROWSER_PREFIX, SampleEvent

BINS = 10  # of root values from -1 to 1
OPENING_PLIES = 2
SHARED = -1  # winner of a game without a single one
WAYS = ("source", "worker", "version")
ROW = np.dtype(
    [
        ("length", "u4"),  # plies, those of chance included
        ("winner", "i2"),  # seat
        ("result", "f4"),  # of seat 0
        ("entropy", "f4"),  # the mean policy target's, in nats; this and the next ones are NaN where nothing was searched
        ("simulations", "f4"),  # mean
        ("value", "f4"),  # mean root value for the player to move
        ("error", "f4"),  # mean squared distance of root value and result
        ("version", "u4"),  # of the weights: the mean, rounded
        ("age", "f4"),  # newest version until then less this mean
        ("opening", "u8"),  # the first plies
        ("moves", "u8"),  # all plies
        ("first", "u2"),  # action
        ("worker", "u4"),  # place in `workers`
        ("bins", "f4", (3, BINS)),  # searched plies by root value: number, sum of root values, sum of results
    ]
)


@dataclass(frozen=True, slots=True)
class PlayedGames:
    """Games in the order in which they were stored."""

    rows: NDArray[Any]  # (G,) of ROW
    workers: tuple[str, ...]

    def of_worker(self, worker: str) -> NDArray[np.bool_]:
        """Which games (G,) one worker made."""
        made: NDArray[np.bool_] = np.array([maker == worker for maker in self.workers])[self.rows["worker"]]
        return made

    def groups(self, by: str | None) -> dict[str, NDArray[Any]]:
        """The rows by source (server, browser), worker or version; all in one without. Raises `ConfigError`."""
        if by is None:
            return {"all": self.rows}
        if by not in WAYS:
            raise ConfigError(f"games are grouped by {', '.join(WAYS)}, not by {by!r}")
        if by == "version":
            return {str(version): self.rows[self.rows["version"] == version] for version in np.unique(self.rows["version"])}
        names = [source_of(worker) for worker in self.workers] if by == "source" else self.workers
        labels = np.array(names)[self.rows["worker"]]
        return {str(name): self.rows[labels == name] for name in np.unique(labels)}


def source_of(worker: str) -> str:
    """Whether a browser's tab or a server's worker made a game."""
    return "browser" if worker.startswith(BROWSER_PREFIX) else "server"


def read_games(rules: Game, events: Iterable[SampleEvent], opening_plies: int = OPENING_PLIES) -> PlayedGames:
    """The figures of games, read one after the other. Raises `NotFound` without any, `IllegalActionError` for those of other rules."""
    workers: dict[str, int] = {}
    newest = 0

    def row(event: SampleEvent) -> tuple[Any, ...]:
        nonlocal newest
        record = event.record
        actions, simulations = np.frombuffer(record.actions, "<u2"), np.frombuffer(record.simulations, "<u2")
        searched = simulations > 0
        versions = np.frombuffer(record.weight_versions, "<u4")[searched]
        newest = max(newest, int(versions.max(initial=0)))
        shares = np.frombuffer(record.policies, "<f2").astype(np.float32)
        shares = shares[shares > 0]
        values = np.frombuffer(record.root_values, "<f4").reshape(len(actions), -1)[searched, 0]
        results = np.asarray(event.returns, np.float32)[rules.replay(actions)[2][searched]]
        place = np.clip((BINS * (values + 1) / 2).astype(np.intp), 0, BINS - 1)
        count = len(values) or np.nan
        best = np.flatnonzero(np.asarray(event.returns) == max(event.returns))
        version = versions.mean() if len(versions) else 0.0
        return (
            len(actions),
            best[0] if len(best) == 1 else SHARED,
            event.returns[0],
            -float(shares @ np.log(shares)) / count,
            simulations.sum() / count,
            values.sum() / count,
            np.square(values - results).sum() / count,
            round(version),
            newest - version,
            _hashed(record.actions[: 2 * opening_plies]),
            _hashed(record.actions),
            actions[0],
            workers.setdefault(event.worker, len(workers)),
            [np.bincount(place, weights, BINS) for weights in (None, values, results)],
        )

    rows = np.fromiter(map(row, events), ROW)
    if not len(rows):
        raise NotFound("no finished games to look at yet; ask again once some were played")
    return PlayedGames(rows, tuple(workers))


def _hashed(actions: bytes) -> int:
    return int.from_bytes(blake2b(actions, digest_size=8).digest())
