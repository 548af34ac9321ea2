"""Value targets: what plies of finished games turned out to be worth, as their movers see it. Pure.

Letters: N rows, T plies, V values, P players, G games.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SearchedPlies:
    """The searched plies of several games, one game behind the other."""

    of: NDArray[np.intp]  # (N,) number of the game among them
    ply: NDArray[np.intp]  # (N,) counted through all of them
    mover: NDArray[np.intp]  # (N,)

    def where(self, kept: NDArray[np.bool_]) -> SearchedPlies:
        """Those that a mask (N,) keeps."""
        return SearchedPlies(self.of[kept], self.ply[kept], self.mover[kept])


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
    ends: NDArray[np.intp],
    td_lambda: float,
    discount: float,
) -> NDArray[np.floating]:
    """TD(lambda) returns (N, V) of searched plies as their movers see them (Sutton and Barto 2018, section 12.1).

    A ply is worth lambda of what the game's next searched ply is worth and the rest of what the search thought there, `root_values` (N, V);
    the last one is worth the game's result, of `returns` (G, P). Each ply on the way discounts, up to the game's end at ply `ends` (N,).
    """
    players, every = returns.shape[1], np.arange(len(rows.of))
    thought = values_by_seat(root_values, rows.mover, players)
    last = np.flatnonzero(np.diff(rows.of, append=-1))
    worth = np.empty_like(thought)
    worth[last] = returns[rows.of[last]] * discount ** (ends[last] - rows.ply[last])[:, None]
    left = np.repeat(last, np.diff(last, prepend=-1)) - every  # searched plies of the game that are still to come
    # All games at once, from their ends: each pass of the loop is over the rows with as many plies to come.
    for those in np.split(np.argsort(left, kind="stable"), np.cumsum(np.bincount(left))[:-1])[1:]:
        ahead = td_lambda * worth[those + 1] + (1.0 - td_lambda) * thought[those + 1]
        worth[those] = ahead * discount ** (rows.ply[those + 1] - rows.ply[those])[:, None]
    return seat_values(worth, rows.mover, root_values.shape[1], every)
