"""Self-play whose brokers are a network away: its share of what the bare network would do, by round trip time.

Self-play, brokers and inference worker are hosts of their own to each other: every byte between two of them takes half a round trip. The
network is a clock, so that two cores are enough to tell what the way costs; it is as slow as these can keep it busy without any way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from azq.bench.clock import NETWORK, seconds_of, serve
from azq.bench.relay import over_a_network
from azq.bench.rig import Rig, changed, command_of, observations, percentile, rig
from azq.bench.selfplay import readings_of
from azq.config import Config, RunSections
from azq.errors import ConfigError, EvaluationTimeout

LEAVES = 1024  # of a request
GROUPS = 2  # of games, a request each: azq's default
SIMULATIONS = 64
PROBES = 60
PATIENCE_S = 30.0
ENOUGH = 0.85  # of the bare network, below which more requests in flight are tried


def bench_fleet(config: Config, *, seconds: float, game: str, network_clock: str, rtt: Sequence[float], loss: float) -> dict[str, Any]:
    """For each round trip time in ms the share of the bare network, first with two groups of games, then with as many as it needs.

    `loss` is the share of packets that are lost. Raises `ConfigError` for a time or a share that is none.
    """
    clock_s = seconds_of(network_clock)
    if not 0.0 <= loss < 1.0 or min(rtt) < 0.0:
        raise ConfigError(f"--loss {loss:g} must be below 1 and --rtt {min(rtt):g} at least 0")
    rows = []
    for rtt_ms in rtt:
        row = _row(config, game, clock_s, (rtt_ms, loss, GROUPS), seconds)
        rows.append(row)
        needed = in_flight(clock_s, 1e-3 * row["round_trip_p50_ms"] - clock_s, row["turn_ms"] / 1e3)
        if row["share_of_bare"] < ENOUGH and needed > GROUPS:
            rows.append(_row(config, game, clock_s, (rtt_ms, loss, needed), seconds))
    return {"game": game, "network_clock_ms": clock_s * 1e3, "leaves_per_request": LEAVES, "rows": rows}


def in_flight(clock_s: float, way_s: float, turn_s: float) -> int:
    """Requests that keep a device busy which takes one in `clock_s`; each is besides `way_s` on its way and `turn_s` at its client."""
    return math.ceil((clock_s + max(0.0, way_s) + turn_s) / clock_s)


def _row(config: Config, game: str, clock_s: float, way: tuple[float, float, int], seconds: float) -> dict[str, Any]:
    rtt_ms, loss, groups = way
    selfplay = {"games_in_flight": groups * LEAVES, "groups": groups, "random_opening_plies": 12, "evaluator": "stream"}
    search = {"num_simulations": SIMULATIONS}
    sections = changed(config.run_sections(), run={"game": game}, search=search, network=NETWORK, selfplay=selfplay)
    command = command_of(serve, clock_s=clock_s, leaves=LEAVES)
    with rig(config, sections, inference=1, command=command, via=partial(over_a_network, rtt_ms=rtt_ms, loss=loss)) as machine:
        trips_ms = round_trips_ms(machine, sections)
        before, after, _ = readings_of(machine, "stream", seconds)
    wall_s, own_s = after.wall_s - before.wall_s, after.own_s - before.own_s
    evaluations, requests = (getattr(after.progress, name) - getattr(before.progress, name) for name in ("evaluations", "requests"))
    return {
        "rtt_ms": rtt_ms,
        "loss": loss,
        "groups": groups,
        "round_trip_p50_ms": round(percentile(trips_ms, 0.5), 2),
        "round_trip_p99_ms": round(percentile(trips_ms, 0.99), 2),
        "turn_ms": round(1e3 * own_s / max(1, requests), 2),
        "evaluations_per_s": round(evaluations / wall_s),
        "share_of_bare": round(requests * clock_s / wall_s, 3),  # at the same size of a request, which is a little below LEAVES
        "cpu_us_per_evaluation": round(1e6 * (after.cpu_s - before.cpu_s) / max(1, evaluations), 2),
    }


def round_trips_ms(machine: Rig, sections: RunSections) -> list[float]:
    """Of one request after another, the clock's time in it."""
    packed, legal = observations(sections, LEAVES)
    found = []
    with machine.client() as client:
        for _ in range(PROBES):
            begun_s = time.perf_counter()
            if client.result(client.submit(packed, legal=legal), timeout_s=PATIENCE_S) is None:
                raise EvaluationTimeout(f"no answer within {PATIENCE_S:.0f} s")
            found.append(1e3 * (time.perf_counter() - begun_s))
    return found[PROBES // 6 :]
