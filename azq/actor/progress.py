"""What a slice has done so far, for heartbeats and logs."""

from __future__ import annotations

from dataclasses import dataclass, field

from azq.metrics import Recent


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

    @property
    def mean_batch(self) -> float:
        """Leaves per request."""
        return self.evaluations / self.requests if self.requests else 0.0

    @property
    def latency_ms(self) -> float:
        """Milliseconds a request takes on average."""
        return 1000 * self.latency_s / self.requests if self.requests else 0.0
