"""How the members of a population differ, who is better, and who becomes like whom (Wu et al., AAAI 2020; Jaderberg et al., 2017). Pure.

Random numbers are functions of the run's seed, the member's place and the step, as those of batches are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from azq.config import LearnerConfig
from azq.wire.messages import PopulationMember

VARIED = ("learning_rate", "value_weight", "weight_decay")
SPREAD = 2.0  # the first factors lie between its inverse and it
CHANGE = 1.25  # by which a factor is multiplied or divided when settings are taken over
FARTHEST = 10.0  # from 1 that a factor may get
MOST_HELD = 1024  # of the newest samples that nobody trains on yet, which tell who is better
_PLACE = 1 << 32  # where batches have their rank in the key: no rank is so high


def first_members(count: int, seed: int) -> list[PopulationMember]:
    """The first has the run's own settings; the others' are drawn, as likely below as above them."""
    draws = [_rng(seed, place, 0).uniform(-1.0, 1.0, len(VARIED)) for place in range(1, count)]
    return [PopulationMember(), *(PopulationMember(*(SPREAD ** float(draw) for draw in each)) for each in draws)]


def explored(member: PopulationMember, seed: int, place: int, step: int) -> PopulationMember:
    """A member's settings, each a little more or less."""
    ups = _rng(seed, place, step).integers(0, 2, len(VARIED))
    changed = {name: getattr(member, name) * (CHANGE if up else 1 / CHANGE) for name, up in zip(VARIED, ups, strict=True)}
    bounded = {name: min(FARTHEST, max(1 / FARTHEST, factor)) for name, factor in changed.items()}
    return structs.replace(member, **bounded, since_step=step)


def settings_of(member: PopulationMember, config: LearnerConfig) -> LearnerConfig:
    """The learner's settings as the member has them."""
    return config.model_copy(update={name: getattr(config, name) * getattr(member, name) for name in VARIED})


def ranked(losses: Sequence[float]) -> list[int]:
    """Places by loss, best first; what diverged is last, and of equals the one that was before stays so."""
    return sorted(range(len(losses)), key=lambda place: (not math.isfinite(losses[place]), losses[place], place))


def held_out(size: int) -> int:
    """How many of the newest `size` samples nobody trains on yet."""
    return min(MOST_HELD, size // 8)


def _rng(seed: int, place: int, step: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, _PLACE], counter=[0, 0, place, step]))
