"""How far a run is, and the learning rate and the network there. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping


def progress(until: Mapping[str, float], minutes: float, games: int, steps: int) -> float:
    """Share of the run's horizon that is behind, in [0, 1]: the furthest of the ends that `until` names; 0 without any."""
    done = {"minutes": minutes, "games": float(games), "steps": float(steps)}
    shares = [done[key] / limit for key, limit in until.items() if key in done and limit > 0]
    return min(1.0, max(shares, default=0.0))
