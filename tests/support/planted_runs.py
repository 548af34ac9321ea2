"""Runs in this process, by the real search and learner, out of lockstep so that limiter and window work; and what is recorded of them."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from memory_broker import MemoryBus, MemoryLedger

from azq import games
from azq.actor import Arenas, SelfPlay, Slice
from azq.config import InferenceConfig, RunSections, merge, parse_run
from azq.inference.ask.local import LocalEvaluator
from azq.inference.weights import WeightCatalog, fetch_from
from azq.learner.learner import Learner
from azq.learner.opening import LearnerSetup, prepare_training
from azq.learner.tracking.tracker import Trackers
from azq.ledger.records import record_of
from azq.presets import preset
from azq.replay.readers import SegmentReader
from azq.replay.samples import samples_of
from azq.status.why.facts import Facts
from azq.status.why.gather import facts_of
from azq.store import open_store
from azq.wire.kinds import Kind
from azq.wire.messages import HistoryPoint, Job

RUN, CREATED_MS, EVERY_MS = "planted", 1_000_000, 10_000
FOR_EVER_S = 1e6
HOST = InferenceConfig(device="cpu", precision="float32", threads=1)
#: over a preset: what is learned from within seconds
SMALL: dict[str, dict[str, Any]] = {
    "selfplay": {"games_in_flight": 64, "groups": 1, "threads": 1, "cache_entries": 0, "random_opening_plies": 2},  # long games
    "network": {"blocks": 1, "channels": 32},
    "learner": {
        "device": "cpu",
        "precision": "float32",
        "threads": 1,
        "batch_size": 64,
        "warmup_steps": 10,
        "ema_decay": 0.9,
        "min_window": 256,
        "samples_per_insert": 8.0,
        "publish_every_s": FOR_EVER_S,
        "publish_every_steps": 48,
    },
    "arena": {"every_s": 0},
}


def flip_values(patch: pytest.MonkeyPatch, module: str) -> None:
    """Lets a module learn from values of the wrong sign."""

    def flipped(*arguments: Any) -> Any:
        samples, counts = samples_of(*arguments)
        return replace(samples, values=-samples.values), counts

    patch.setattr(f"{module}.samples_of", flipped)


def sections_of(game: str, variant: str = "", **more: Any) -> RunSections:
    """A game's preset made small, and settings over it."""
    base = merge(preset(game), preset(game, variant)) if variant else preset(game)
    return parse_run(merge(merge(base, SMALL), more), "test")


def facts(sections: RunSections, folder: Path, rounds: int = 12, games_each: int = 64) -> Facts:
    """What is known of a run after so many rounds of games and of all the training they allow."""
    game, bus = games.load(sections.run.game, **sections.run.params), MemoryBus()
    points: list[HistoryPoint] = []
    ledger, store = MemoryLedger(bus), open_store("file", directory=folder / "weights")
    ledger.create_run(record_of(RUN, sections, folder, CREATED_MS))
    prepare_training(sections.learner)
    learner = LearnerSetup(RUN, folder, sections, game, bus=bus, ledger=ledger, store=store, tracker=Trackers([]), consumer=RUN).open()
    arenas, catalog = Arenas(), WeightCatalog(bus, RUN)
    with contextlib.closing(LocalEvaluator.from_catalog(game, catalog, fetch_from(store), HOST)) as evaluator:
        try:
            _learn(learner)
            for number in range(1, rounds + 1):
                job = ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=games_each, slice_s=FOR_EVER_S))
                lease = ledger.claim(job.job.job_id, 1, RUN, FOR_EVER_S)
                assert lease is not None
                played = Slice(lease, sections, game)
                SelfPlay(ledger, played, evaluator, arenas, should_stop=partial(_enough, ledger, games_each * number)).run()
                _learn(learner)
                points.append(_point(learner, CREATED_MS + EVERY_MS * number))
        finally:
            learner.ranks.close()
    return facts_of(game, sections, list(SegmentReader(folder / "segments").last(2_000)), points)


def _learn(learner: Learner) -> None:
    """Takes games in, and makes the steps that they allow."""
    never = threading.Event()
    learner.taking.turn()
    while True:
        before = learner.status().step
        learner.turn(never)
        if learner.status().step == before:
            break
    learner.report()


def _enough(ledger: MemoryLedger, games_wanted: int) -> bool:
    return ledger.counts(RUN).finished >= games_wanted


def _point(learner: Learner, at_ms: int) -> HistoryPoint:
    said = learner.status()
    return HistoryPoint(
        at_ms,
        loss_policy=said.loss_policy,
        loss_value=said.loss_value,
        samples=said.samples_inserted,
        step=said.step,
        weight_version=said.weight_version,
        games=said.games_inserted,
    )
