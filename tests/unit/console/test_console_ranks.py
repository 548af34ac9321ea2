"""What a person sees of ranks, and what a machine reads."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from azq.config import Config
from azq.console import ranks
from azq.errors import StateConflict
from azq.host import brokers
from azq.ledger.types import LedgerCounts, RunState, RunView
from azq.status.summary import RunFacts, RunStatus, ranks_status, summarise
from azq.wire.messages import HistoryPoint, LearnerStatus, RunRecord
from azq.wire.ranks import RankStatus
from daemon.api import figures

EACH = (
    RankStatus(0, "trains", "first", "cuda:0", 96, 3000.0, 0.032, 0.001, 800_000_000),
    RankStatus(1, "trains", "second", "cuda:0", 160, 5000.0, 0.032, 0.002, 900_000_000, 40, 2, "out of memory", 0, 71_400_000),
    RankStatus(2, "left_out", "third", errors=6, reason="its process ended"),
)
LEARNER = LearnerStatus(
    120, 5000, 20000, 160, 0, 5000, 1.25, 0.31, 2e-3, 7, False, False, 7900.0, 0, 0.5, 3, 2, 4, 0.032, 0.0015, 0.97, each_rank=EACH
)


def status() -> RunStatus:
    view = RunView(RunRecord("first", b"{}", {}, "runs/first", 0), RunState.RUNNING, "", 0, 0)
    newest = HistoryPoint(0, samples_per_s=LEARNER.samples_per_s, active_ms=1)
    return summarise(RunFacts(view=view, counts=LedgerCounts(0, 0, 0, 0, 0, 0, 0), learner=LEARNER, point=newest), 0)


def test_each_rank_has_a_line_and_all_of_them_a_sum() -> None:
    output = io.StringIO()
    Console(file=output, width=160).print(ranks.drawn(status()))
    shown = " ".join(output.getvalue().split())
    for text in (
        "healthy ranks 2 of 3: 0, 1",
        "failed ranks 1 of 3: 2",
        "throughput 7.9k samples/s",
        "mean step 32.0 ms",
        "scaling efficiency 97%",
        "fallback active",
        "1 trains second cuda:0 160 by 40 5k 32.0 2.0 900 MB 71.4 MB 2 out of memory",
        "2 left out third 0 0 0.0 0.0 0 MB 0.0 MB 6 its process ended",
    ):
        assert text in shown


def test_metrics_name_run_rank_and_host() -> None:
    said = {(sample.name, *sample.labels.values()): sample.value for family in figures.of_runs([status()]) for sample in family.samples}
    assert said["azq_rank_samples_per_s", "first", "1", "second"] == 5000.0
    assert said["azq_rank_errors", "first", "2", "third"] == 6
    assert said["azq_rank_memory_bytes", "first", "0", "first"] == 8e8
    assert said["azq_rank_state_bytes", "first", "1", "second"] == 71.4e6


def test_a_run_is_watched_for_as_long_as_asked_and_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([replace(status(), learner_step=step) for step in (1, 2, 3)])
    watch: Any = type("Watched", (), {"__init__": lambda self, client: None, "summary": lambda self, run: next(looks)})
    monkeypatch.setattr(ranks, "Watch", watch)
    monkeypatch.setattr(brokers, "open_control", lambda config: (config, None))
    waits: list[float] = []
    ranks.show_ranks(Config(), "first", 2.0, True, waits.append)
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["run"], told["step"], waits) == ("first", 3, [1.0, 1.0])
    assert [row["rank"] for row in told["each"]] == [0, 1, 2]


def test_a_run_without_ranks_says_what_to_do() -> None:
    with pytest.raises(StateConflict, match=r"learner\.ranks is 1; `azq status --run first`"):
        ranks._of_many(replace(status(), ranks=ranks_status(msgspec.structs.replace(LEARNER, ranks=1))))
