"""What a slice has done so far, for heartbeats and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from azq import _core
from azq.metrics import FIGURES, Recent


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

    @property
    def counts(self) -> dict[str, int]:
        """What becomes rates in heartbeats, by the counters of `azq.metrics`."""
        return {"games": self.games, "evaluations": self.evaluations, "requests": self.requests, **self.searched}

    @property
    def mean_batch(self) -> float:
        """Leaves per request."""
        return self.evaluations / self.requests if self.requests else 0.0

    @property
    def latency_ms(self) -> float:
        """Milliseconds a request takes on average."""
        return 1000 * self.latency_s / self.requests if self.requests else 0.0


#: Counters that are not a slice's own: each search has them as attributes.
SEARCH_COUNTERS = tuple(figure.counter for figure in FIGURES if figure.counter and figure.counter not in Progress().counts)


def counts_of(searches: Sequence[_core.Search]) -> Counter[str]:
    """What searches counted since they were made, together; a search that does not know of a counter has nothing to count."""
    return Counter({name: sum(getattr(search, name, 0) for search in searches) for name in SEARCH_COUNTERS})
