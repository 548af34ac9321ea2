"""Keeps training and self-play in step: each inserted sample is to be drawn `samples_per_insert` times.

After the rate limiters of Reverb (Cassirer et al., 2021, section 3.3). Pure functions of two counters.
The learner never draws more than the ratio allows; self-play may run `limiter_slack` samples ahead of it. At any counts
at most one side is stalled, so the run cannot lock.
"""

from __future__ import annotations

from azq.config import LearnerConfig


def steps_allowed(inserted: int, consumed: int, config: LearnerConfig) -> int:
    """Batches that keep samples drawn per sample inserted within `samples_per_insert`; 0 before the window has its minimum."""
    if inserted < config.min_window:
        return 0
    return max(0, int((config.samples_per_insert * inserted - consumed) // config.batch_size))


def may_train(inserted: int, consumed: int, config: LearnerConfig) -> bool:
    """True when there is a batch to train on within the limit."""
    return steps_allowed(inserted, consumed, config) > 0


def stall_selfplay(inserted: int, consumed: int, config: LearnerConfig) -> bool:
    """True when self-play is more than `limiter_slack` samples ahead of a learner that could train."""
    ahead = inserted - consumed / config.samples_per_insert
    return may_train(inserted, consumed, config) and ahead > config.limiter_slack
