"""Why a run has no games to learn from: nothing else that is said of it would say so. Pure."""

from __future__ import annotations

from azq.ledger.types import LedgerCounts

PATIENCE_S = 15.0  # a run at work that evaluates nothing has started all there is by then
EMPTY_GAMES = 50  # without a sample


def no_games(counts: LedgerCounts, active_s: float, samples: int | None, failed: str, abandoned: str, *, evaluating: bool) -> str:
    """A sentence with the last reason that is known; empty where games are finished, or searched.

    `samples`: of the learner, None where none has spoken; `failed`: which job of self-play failed last, and why; `abandoned`: why one of
    the abandoned games was.
    """
    if counts.inserted >= EMPTY_GAMES and samples == 0:
        return f"{counts.inserted} games and no sample: they are over before anybody moves; `azq games check` tries the rules"
    if counts.finished:
        return ""
    if counts.abandoned:
        return f"no game was finished, {counts.abandoned} were abandoned because {abandoned or 'nobody said why'}"
    if failed:
        return f"no game was finished: {failed}"
    if evaluating or active_s < PATIENCE_S:
        return ""
    if not counts.opened:
        return f"no game was begun in {active_s:.0f} s: no worker has taken a job of self-play"
    if not counts.evaluations:
        return f"no game was finished in {active_s:.0f} s: no position was evaluated, for want of weights or of an inference worker"
    return f"no game was finished in {active_s:.0f} s; {counts.open} are open, and nothing is evaluated now"
