"""What a slice has done so far, for heartbeats and logs, and how fast slices go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from azq.metrics import EVAL_LATENCY_MS, EVALUATIONS_PER_S, FIGURES, MEAN_BATCH, RESENT, Rate, Recent
from azq.search.search import Search

_COUNTERS = {figure.name: figure.counter for figure in FIGURES if figure.counter}


@dataclass(slots=True)
class Progress:
    """Running sums of one slice; `latency_s` sums the waits from submission to evaluation over all requests."""

    games: int = 0
    evaluations: int = 0
    requests: int = 0
    latency_s: float = 0.0
    waited_s: float = 0.0  # part of the slice spent doing nothing but waiting for evaluations
    search_s: float = 0.0  # CPU of the slice's thread in the search; of further search threads it knows nothing
    open_games: int = 0
    abandoned: int = 0
    weight_version: int = 0
    latencies_ms: Recent = field(default_factory=Recent)  # of single requests
    searched: Counter[str] = field(default_factory=Counter)  # what the searches count, see `SEARCH_COUNTERS`

    def answered(self, after_s: float, weight_version: int) -> None:
        """Counts a request that was evaluated so long after its submission."""
        self.requests += 1
        self.latency_s += after_s
        self.latencies_ms.add(1000 * after_s)
        self.weight_version = weight_version

    @property
    def counts(self) -> dict[str, int]:
        """What becomes rates in heartbeats, by the counters of `azq.metrics`."""
        return {"games": self.games, "evaluations": self.evaluations, "requests": self.requests, **self.searched}

    @property
    def mean_batch(self) -> float:
        return self.evaluations / self.requests if self.requests else 0.0

    @property
    def latency_ms(self) -> float:
        """Milliseconds a request takes on average."""
        return 1000 * self.latency_s / self.requests if self.requests else 0.0


#: Counters that are not a slice's own: each search has them as attributes.
SEARCH_COUNTERS = tuple(counter for counter in _COUNTERS.values() if counter not in Progress().counts)


def counts_of(searches: Sequence[Search]) -> Counter[str]:
    """What searches counted since they were made, together."""
    return Counter({name: sum(getattr(search, name) for search in searches) for name in SEARCH_COUNTERS})


class Meter:
    """Turns the running sums of a slice into rates, over slices."""

    def __init__(self) -> None:
        self._rates = {name: Rate() for name in (*_COUNTERS.values(), "requests")}
        self._resent = 0.0  # by the slice of now
        self._resent_before = 0.0  # by the slices before it
        self.begin()

    def begin(self) -> None:
        """A new slice starts from zero."""
        self._seen: Counter[str] = Counter()
        self._resent_before, self._resent = self._resent_before + self._resent, 0.0

    def rates(self, progress: Progress, *, resent: float = 0.0) -> dict[str, float]:
        """The figures as of now, by their names in heartbeats."""
        counts, self._resent = Counter(progress.counts), resent
        for name, rate in self._rates.items():
            rate.add(counts[name] - self._seen[name])
        self._seen = counts
        rates = {name: self._rates[counter].per_s() for name, counter in _COUNTERS.items()}
        requests = self._rates["requests"].per_s()
        return rates | {
            MEAN_BATCH: rates[EVALUATIONS_PER_S] / requests if requests else 0.0,
            EVAL_LATENCY_MS: progress.latency_ms,
            RESENT: self._resent_before + resent,
            **progress.latencies_ms.named(EVAL_LATENCY_MS),
        }
