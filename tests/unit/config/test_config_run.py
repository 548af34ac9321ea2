"""Settings of a run that have to agree with each other: which devices its ranks take."""

from __future__ import annotations

from typing import Any

import pytest

from azq.config import LearnerConfig


@pytest.mark.parametrize(
    ("settings", "ranks", "order"),
    [
        ({"ranks": 3}, 3, ()),
        ({"devices": ("cpu", "cpu")}, 2, ("cpu", "cpu")),
        ({"devices": ("cuda:0", "cuda:2"), "ranks": 2}, 2, ("cuda:0", "cuda:2")),
        ({"devices": ("cuda:0", "cuda:2", "cuda:3"), "primary": "cuda:2"}, 3, ("cuda:2", "cuda:0", "cuda:3")),
    ],
)
def test_devices_count_the_ranks_and_the_primary_comes_first(settings: dict[str, Any], ranks: int, order: tuple[str, ...]) -> None:
    config = LearnerConfig(**settings)
    assert (config.ranks, config.rank_devices) == (ranks, order)
    assert LearnerConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"devices": ("cuda:1", "cuda:1")}, "devices name cuda:1 more than once"),
        ({"devices": ("cuda:0", "cuda")}, "devices name 'cuda'; each is cpu, mps or a GPU with its number"),
        ({"devices": ("auto",)}, "devices name 'auto'"),
        ({"devices": ("cuda:0", "cpu")}, "devices cuda:0, cpu are of several kinds"),
        ({"devices": ("cuda:0", "cuda:1"), "primary": "cuda:2"}, r"primary 'cuda:2' is not among devices \(cuda:0, cuda:1\)"),
        ({"primary": "cuda:0"}, r"primary 'cuda:0' is not among devices \(none\)"),
        ({"devices": ("cpu", "cpu"), "device": "cpu"}, "device is 'cpu' and devices are named; set one of the two"),
        ({"devices": ("cpu", "cpu"), "ranks": 3}, "ranks is 3, devices are 2; leave ranks out"),
    ],
)
def test_devices_that_no_ranks_can_have_are_refused_with_the_remedy(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LearnerConfig(**settings)
