"""Keeps training and self-play in step: each inserted sample is to be drawn `samples_per_insert` times.

After the rate limiters of Reverb (Cassirer et al., 2021, section 3.3). Pure functions of two counters.
The learner never draws more than the ratio allows; self-play may run `limiter_slack` samples ahead of it. At any counts
at most one side is stalled, so the run cannot lock.
"""

from __future__ import annotations

from azq.config import LearnerConfig


def may_train(inserted: int, consumed: int, config: LearnerConfig) -> bool:
    """True when the next batch keeps samples drawn per sample inserted within `samples_per_insert`, once the window has its minimum."""
    return inserted >= config.min_window and consumed + config.batch_size <= config.samples_per_insert * inserted


def stall_selfplay(inserted: int, consumed: int, config: LearnerConfig) -> bool:
    """True when self-play is more than `limiter_slack` samples ahead of a learner that could train."""
    ahead = inserted - consumed / config.samples_per_insert
    return may_train(inserted, consumed, config) and ahead > config.limiter_slack
