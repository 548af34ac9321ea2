"""What a run in lockstep is set to, what its versions are, and where two such runs part. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azq.config import InferenceConfig, RunSections, dump_run, merge, parse_run
from azq.config.loading import toml_value
from azq.presets import preset
from azq.wire.messages import WeightEvent

#: over the game's preset: small, and nothing that goes by the clock
LOCKSTEP: dict[str, dict[str, Any]] = {
    "search": {"num_simulations": 16, "reuse_subtree": False, "schedule": []},
    "selfplay": {
        "games_in_flight": 8,
        "groups": 2,
        "answer_within_ms": 0.0,
        "threads": 1,
        "cache_entries": 0,
        "journal_s": 1.0,
        "fork_share": 0.0,
    },
    "network": {"blocks": 2, "channels": 32},
    "learner": {
        "device": "cpu",
        "precision": "float32",
        "threads": 1,
        "compile": False,
        "ranks": 1,
        "batch_size": 64,
        "warmup_steps": 10,
        "muon_rate": 0.0,
        "lr_drops": [],
        "lr_schedule": [],
        "min_window": 1,
        "max_window": 100_000,
        "lockstep_games": 32,
        "lockstep_steps": 16,
        "checkpoint_every_s": 1.0,
    },
    "arena": {"every_s": 0},
}
#: a game's own, which its baselines and bands were made with
PINNED: dict[str, dict[str, Any]] = {
    "connect_four": {"learner": {"learning_rate": 2e-3}, "network": {"parity": False}, "selfplay": {"random_opening_plies": 6}},
    "hex": {"selfplay": {"random_opening_plies": 3}},
    "backgammon": {
        "search": {"c_scale": 1.0},
        "learner": {"samples_per_insert": 2.0, "root_value_fraction": 0.5, "value_scaling": "none"},
    },
}
NOTHING: Mapping[str, Mapping[str, Any]] = {}
HOST = InferenceConfig(device="cpu", precision="float32", threads=1)


@dataclass(frozen=True, slots=True)
class LockstepVersion:
    """One set of weights, and what it was made of."""

    number: int
    hash: str  # sha256 of the weights' names, shapes, types and bytes, as they are published
    step: int
    games: int  # that it was learned from
    samples: str  # sha256 of the samples that were new, in no order
    order: str  # sha256 of the batches, one after the other


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where a run parts from what was expected."""

    run: str
    version: int
    differs: str  # samples, order or gradients; weights of the first version; missing
    hash: str
    expected: str


def lockstep_sections(game: str, seed: int, evaluator: str, more: Mapping[str, Mapping[str, Any]] = NOTHING) -> RunSections:
    """A game's preset in lockstep, and `more` settings over it; raises `ConfigError` where no lockstep goes with them."""
    ours = merge(merge(LOCKSTEP, PINNED.get(game, {})), {"run": {"seed": seed, "tag": "cpu"}, "selfplay": {"evaluator": evaluator}})
    return parse_run(merge(merge(preset(game), ours), more), f"the preset of {game} in lockstep")


def overrides_of(sections: RunSections) -> list[str]:
    """All settings of a run as after `--set`, so that no file and no environment has a say."""
    return [f"{name}.{key}={toml_value(value)}" for name, section in dump_run(sections).items() for key, value in section.items()]


def fingerprint(sections: RunSections) -> str:
    """Of the settings that weights follow from, but for defaults: a setting that is new alters none. Who evaluates is none of them."""
    values = sections.model_dump(mode="json", exclude_defaults=True)
    values["selfplay"].pop("evaluator", None)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def version_of(event: WeightEvent, sections: RunSections) -> LockstepVersion:
    """A published version as it is compared."""
    games = event.step // sections.learner.lockstep_steps * sections.learner.lockstep_games
    return LockstepVersion(event.version, event.sha256, event.step, games, event.samples_sha256, event.order_sha256)


def first_difference(run: str, versions: Sequence[LockstepVersion], expected: Sequence[LockstepVersion]) -> FirstDifference | None:
    """The first version that is not as expected, and what differs; None where all are, as far as both go."""
    for ours, theirs in zip(versions, expected, strict=False):
        if ours != theirs:
            return FirstDifference(run, theirs.number, _differs(ours, theirs), ours.hash, theirs.hash)
    return None


def _differs(ours: LockstepVersion, theirs: LockstepVersion) -> str:
    if (ours.number, ours.step) != (theirs.number, theirs.step):
        return "missing"
    if ours.samples != theirs.samples:
        return "samples"
    if ours.order != theirs.order:
        return "order"
    return "gradients" if ours.samples else "weights"
