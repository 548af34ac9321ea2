"""What contributors did, in the control plane: games and samples by day, by month and ever; the order that games leave a run's window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import redis

from azq.errors import EvaluationTimeout
from azq.ledger import Ledger
from azq.replay.samples import count_samples
from azq.waiting import until
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import translate
from azq.wire.machines import PurgedGames, PurgeOrders
from azq.wire.messages import BROWSER_PREFIX, SampleEvent

DAY_S = 86_400
PERIODS = {"ever": ("ever", 0), "month": ("%Y-%m", 400 * DAY_S), "day": ("%Y-%m-%d", 40 * DAY_S)}  # name of its key, life
SUMS = ("games", "samples")
ABSENT_MS = 300_000  # a longer pause between two games is no time at work


class ContributionCounts:
    """Those of a control plane; each call may raise `BrokerError`."""

    def __init__(self, client: redis.Redis, clock_ms: Callable[[], int]) -> None:
        self.client = client
        self._clock_ms = clock_ms

    def credit(self, events: Sequence[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """Adds committed games; returns the figures of their contributors."""
        contributors = [event.worker.removeprefix(BROWSER_PREFIX) for event in events]
        up_ms = self._up_ms(zip(contributors, (event.finished_ms for event in events), strict=True))
        with translate(self.client), self.client.pipeline() as pipe:
            for event, contributor in zip(events, contributors, strict=True):
                for period, (_, life_s) in PERIODS.items():
                    key = self._key(period)
                    pipe.hincrby(key, f"games {contributor}", 1)
                    pipe.hincrby(key, f"samples {contributor}", count_samples(event))
                    pipe.hset(key, f"last {contributor}", event.finished_ms)
                    if life_s:
                        pipe.expire(key, life_s)
            for contributor, passed_ms in up_ms.items():
                pipe.hincrby(self._key("ever"), f"up_ms {contributor}", passed_ms)
            pipe.execute()
        return self.figures(set(contributors))

    def _up_ms(self, games: Iterable[tuple[str, int]]) -> Mapping[str, int]:
        """How long each contributor was at work until these games, since the last game that counts."""
        ends: dict[str, list[int]] = {}
        for contributor, finished_ms in games:
            ends.setdefault(contributor, []).append(finished_ms)
        with translate(self.client):
            fields = [f"last {contributor}" for contributor in ends]
            last_ms: Any = self.client.hmget(self._key("ever"), fields) if fields else ()
        moments = {name: sorted([int(last or min(after)), *after]) for (name, after), last in zip(ends.items(), last_ms, strict=True)}
        return {name: sum(end - begin for begin, end in pairwise(times) if end - begin <= ABSENT_MS) for name, times in moments.items()}

    def figures(self, contributors: Collection[str]) -> Mapping[str, Mapping[str, int]]:
        """Games and samples of these contributors, ever."""
        fields = [f"{what} {contributor}" for contributor in contributors for what in SUMS]
        with translate(self.client):
            values: Any = iter(self.client.hmget(self._key("ever"), fields) if fields else ())
        return {contributor: {what: int(next(values) or 0) for what in SUMS} for contributor in contributors}

    def sums(self, period: str) -> dict[str, dict[str, int]]:
        """Games, samples and the time of the last game of each contributor in a period."""
        with translate(self.client):
            values: Any = self.client.hgetall(self._key(period))
        sums: dict[str, dict[str, int]] = {}
        for field, value in values.items():
            what, _, contributor = field.decode().partition(" ")
            sums.setdefault(contributor, {})[what] = int(value)
        return sums

    def totals(self) -> Mapping[str, Mapping[str, int]]:
        """Games, samples and contributors of all: `ever`, in this `month` and this `day`."""
        totals = {}
        for period in PERIODS:
            rows = self.sums(period).values()
            totals[period] = {name: sum(row.get(name, 0) for row in rows) for name in SUMS} | {"contributors": len(rows)}
        return totals

    def _key(self, period: str) -> str:
        return keys.totals(datetime.fromtimestamp(self._clock_ms() / 1000, UTC).strftime(PERIODS[period][0]))


def purge(client: redis.Redis, run: str, contributor: str, until_ms: int, wait_s: float) -> PurgedGames | None:
    """Orders a contributor's games finished by then out of a run's window; the learner's answer, None without one in time.

    Raises `NotFound`, `BrokerError`.
    """
    Ledger(client).run(run)
    worker = f"{BROWSER_PREFIX}{contributor}"

    def order(pipe: Any) -> None:
        before: Any = client.get(keys.purges(run))
        orders = decode(before, PurgeOrders).until_ms if before else {}
        pipe.multi()
        pipe.set(keys.purges(run), encode(PurgeOrders(orders | {worker: until_ms})))

    def answer() -> PurgedGames | None:
        frame: Any = client.get(keys.purged(run, worker))
        purged = decode(frame, PurgedGames) if frame else None
        return purged if purged and purged.until_ms == until_ms else None

    with translate(client):
        client.transaction(order, keys.purges(run))
        with suppress(EvaluationTimeout):
            return until(answer, "", wait_s)
    return None
