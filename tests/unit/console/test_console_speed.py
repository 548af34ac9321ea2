"""What a run's speed hangs on: runs whose bottleneck was planted, and the watching of one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from azq.cli.app import app
from azq.config import RunSections
from azq.console import speed
from azq.console.profile import profile_of_shares
from azq.console.speed import Bottleneck, SpeedFacts, SpeedReport, bottleneck
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.status.summary import RunFacts, summarise
from azq.wire.messages import LearnerStatus, RunRecord

WAITS = {"phase_wall_idle": 0.9, "phase_wall_backward": 0.1, "phase_cpu_backward": 0.1}
TRAINS = {"phase_wall_idle": 0.02, "phase_wall_backward": 0.9, "phase_wall_load": 0.08, "phase_cpu_backward": 0.9}
SEARCHES = {"phase_wall_search": 0.8, "phase_wall_wait": 0.2, "phase_cpu_search": 0.8}
ASKS = {"phase_wall_search": 0.1, "phase_wall_wait": 0.9, "phase_cpu_search": 0.1}
MOVES = {"phase_wall_search": 0.1, "phase_wall_wait": 0.2, "phase_wall_transport": 0.4, "phase_wall_ledger": 0.3}
EVALUATES = {"phase_wall_forward": 0.9, "phase_wall_idle": 0.1, "phase_cpu_forward": 0.9}
RESTS = {"phase_wall_forward": 0.2, "phase_wall_idle": 0.8, "phase_cpu_forward": 0.2}


def watched(
    plays: dict[str, float],
    evaluates: dict[str, float],
    trains: dict[str, float],
    *,
    stalled: float = 0.0,
    waiting: float = 1.0,
    cores: int | None = 16,
    samples: int = 100_000,
    precision: str = "auto",
    **sections: Any,
) -> SpeedFacts:
    named = {"selfplay": plays, "inference": evaluates, "learner": trains}
    view = RunView(RunRecord("r", b"{}", {}, "runs/r", 0), RunState.RUNNING, "", 0, 0)
    told = LearnerStatus(1, samples, samples, 0, 0, samples, 1.0, 1.0, 1e-3, 1, False, False, 0.0, 0, 0.0)
    status = summarise(RunFacts(view=view, counts=LedgerCounts(0, 0, 0, 0, 0, 0, 0), learner=told), 0)
    profiles = profile_of_shares({role: shares for role, shares in named.items() if shares})
    return SpeedFacts(profiles, stalled, waiting, status, RunSections.model_validate(sections), cores, precision)


@pytest.mark.parametrize(
    ("facts", "part", "key"),
    [
        (watched(ASKS, EVALUATES, WAITS, samples=100), "limiter", "learner.min_window"),
        (watched(ASKS, RESTS, WAITS, stalled=0.4, waiting=0.5), "limiter", "learner.limiter_slack"),
        (watched(SEARCHES, RESTS, WAITS), "search", "worker.concurrency"),
        (watched(SEARCHES, RESTS, WAITS, cores=None), "search", "search.num_simulations"),
        (watched(ASKS, EVALUATES, WAITS), "network", "network.channels"),
        (watched(ASKS, EVALUATES, WAITS, precision="float32"), "network", "inference.precision"),
        (watched(ASKS, EVALUATES, WAITS, selfplay={"cache_entries": 0}), "network", "selfplay.cache_entries"),
        (watched(ASKS, {}, WAITS), "network", "network.channels"),  # each self-play process evaluates for itself
        (watched(ASKS | {"phase_cpu_wait": 0.8}, RESTS, WAITS), "network", "network.channels"),  # though workers wait for others' requests
        (watched(ASKS | {"phase_cpu_wait": 0.8}, RESTS, WAITS, cores=1), "network", "network.channels"),
        (watched(ASKS, RESTS, WAITS), "queue", "selfplay.games_in_flight"),
        (watched(ASKS, RESTS, WAITS, selfplay={"answer_within_ms": 25.0}), "queue", "selfplay.answer_within_ms"),
        (watched(MOVES, RESTS, WAITS), "queue", "selfplay.journal_s"),
        (watched(SEARCHES, EVALUATES, TRAINS, stalled=0.8, waiting=0.0), "learner", "learner.samples_per_insert"),
        (watched(SEARCHES, EVALUATES, TRAINS, waiting=0.1), "learner", "learner.samples_per_insert"),
        (watched(SEARCHES, EVALUATES, TRAINS, waiting=0.0, learner={"threads": 1}), "learner", "learner.threads"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_load": 0.9}, waiting=0.0), "learner", "learner.prefetch_batches"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_sync": 0.9}, waiting=0.0), "learner", "learner.sync_every"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_publish": 0.9}, waiting=0.0), "learner", "learner.publish_every_s"),
        (watched(SEARCHES, EVALUATES, {"phase_wall_checkpoint": 0.9}, waiting=0.0), "learner", "learner.checkpoint_every_s"),
        (watched(ASKS, EVALUATES, WAITS, cores=1), "network", "network.channels"),  # full: who takes most
        (watched(SEARCHES, RESTS, WAITS, cores=1), "search", "search.num_simulations"),
        (watched(ASKS, RESTS, {"phase_wall_backward": 0.7, "phase_cpu_backward": 0.7}, cores=1), "learner", "learner.samples_per_insert"),
    ],
)
def test_a_planted_bottleneck_is_named_with_its_setting(facts: SpeedFacts, part: str, key: str) -> None:
    found = bottleneck(facts)
    assert (found.part, found.setting.key) == (part, key)
    section, name = key.split(".")
    if section not in ("inference", "worker"):  # a host's, not the run's
        assert found.setting.now == getattr(getattr(facts.sections, section), name)
        RunSections.model_validate({section: {name: found.setting.value}})
    assert found.setting.value != found.setting.now
    assert key in str(found)


def test_cores_that_are_full_are_counted_with_whose_they_are() -> None:
    assert "1.1 of 1 cores are at work, 0.9 of them with forward passes" in str(bottleneck(watched(ASKS, EVALUATES, WAITS, cores=1)))


def test_the_verdict_is_told_before_the_table_and_to_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = watched(ASKS, EVALUATES, WAITS)
    report = SpeedReport("r", 20.0, bottleneck(facts), facts)
    monkeypatch.setattr(speed, "examine_speed", lambda *_: report)
    text = CliRunner().invoke(app, ["doctor", "--speed"]).output.splitlines()
    assert text[0].startswith("network: the learner waits for games; self-play searches 10% of its time, waits for evaluations 90%")
    assert "inference: 1 process, 0.90 cores" in text
    told = json.loads(CliRunner().invoke(app, ["doctor", "--speed", "--json"]).output)
    assert (told["bottleneck"]["part"], told["bottleneck"]["setting"]["key"]) == ("network", "network.channels")
    assert told["cores_used"]["network"] == 0.9
    assert isinstance(report.bottleneck, Bottleneck)
