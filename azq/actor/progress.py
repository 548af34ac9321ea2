"""What a slice has done so far, for heartbeats and logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from azq.metrics import Recent
from azq.search.search import Search

#: Figures of a slice that the searches count themselves.
COUNTED = ("plies", "simulations", "exact_simulations", "cache_lookups", "cache_hits", "merged_leaves")


@dataclass(slots=True)
class Progress:
    """Running sums of one slice; `latency_s` sums the waits from submission to evaluation over all requests."""

    games: int = 0
    plies: int = 0
    simulations: int = 0
    evaluations: int = 0
    requests: int = 0
    latency_s: float = 0.0
    waited_s: float = 0.0  # part of the slice spent doing nothing but waiting for evaluations
    search_s: float = 0.0  # CPU of the slice's thread in the search; of further search threads it knows nothing
    open_games: int = 0
    abandoned: int = 0
    weight_version: int = 0
    latencies_ms: Recent = field(default_factory=Recent)  # of single requests
    exact_simulations: int = 0  # see azq.metrics, as the next three
    cache_lookups: int = 0
    cache_hits: int = 0
    merged_leaves: int = 0

    @property
    def mean_batch(self) -> float:
        """Leaves per request."""
        return self.evaluations / self.requests if self.requests else 0.0

    @property
    def latency_ms(self) -> float:
        """Milliseconds a request takes on average."""
        return 1000 * self.latency_s / self.requests if self.requests else 0.0


def counts_of(searches: Iterable[Search]) -> dict[str, int]:
    """What searches counted since they were made, together, by the names in `COUNTED`."""
    found = list(searches)
    return {name: sum(getattr(search, name) for search in found) for name in COUNTED}
