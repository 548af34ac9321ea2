"""`azq profile` on the heartbeats of a fleet that does not exist."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from factories import heartbeat
from memory_broker import MemoryBus
from typer.testing import CliRunner

from azq.cli.app import app
from azq.console.profile import as_text, looks, profile_of
from azq.errors import NotFound
from azq.status.observe import read_workers
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import Heartbeat

PLAYED = {"first": 3}


def beat(role: str, worker: str, sent_ms: int = 1, run: str = "", versions: dict[str, int] | None = None, **rates: float) -> Heartbeat:
    return heartbeat(role, worker, sent_ms=sent_ms, run=run, rates=rates, weight_versions=versions or {})


def fleet(sent_ms: int, forward: float) -> list[Heartbeat]:
    return [
        beat("selfplay", "a", sent_ms, versions=PLAYED, phase_wall_search=0.9, phase_wall_wait=0.1, phase_cpu_search=1.8),
        beat(
            "selfplay", "b", sent_ms, versions=PLAYED, phase_wall_search=0.5, phase_wall_wait=0.5, phase_cpu_search=1.0, phase_cpu_wait=0.2
        ),
        beat("selfplay", "c", sent_ms, versions={"second": 1}, phase_wall_search=0.1),
        beat("inference", "i", sent_ms, versions=PLAYED, phase_wall_forward=forward, phase_cpu_forward=1.0, phase_device_forward=0.9),
        beat("learner", "l", sent_ms, run="second", phase_wall_load=1.0),
        beat("daemon", "d", sent_ms, run="first", phase_wall_other=1.0),
    ]


def test_a_role_is_the_mean_of_its_processes_time_and_the_sum_of_their_cores() -> None:
    selfplay, inference = profile_of([fleet(1, 0.4)], "first")
    assert (selfplay.role, selfplay.processes, selfplay.cpu_cores) == ("selfplay", 2, pytest.approx(3.0))
    search, wait = selfplay.rows
    assert (search.phase, search.wall_share, search.cpu_cores) == ("search", pytest.approx(0.7), pytest.approx(2.8))
    assert search.cpu_share == pytest.approx(2.8 / 3.0)
    assert (wait.phase, wait.wall_share, wait.device_share) == ("wait", pytest.approx(0.3), None)
    assert inference.rows[0].device_share == 0.9


def test_a_heartbeat_that_did_not_change_between_two_looks_counts_once() -> None:
    *_, inference = profile_of([fleet(1, 0.2), fleet(1, 0.2), fleet(2, 0.8)], "first")
    assert inference.rows[0].wall_share == pytest.approx(0.5)


def test_a_run_that_nobody_works_for_has_no_profile() -> None:
    for looked, run in (([fleet(1, 0.2)], "third"), ([], "first")):
        with pytest.raises(NotFound, match=f"no live process works for run '{run}'"):
            profile_of(looked, run)


def test_the_table_names_every_phase() -> None:
    profiles = profile_of([fleet(1, 0.4)], "first")
    text = as_text(profiles)
    assert "selfplay: 2 processes, 3.00 cores" in text
    assert "70.0%" in text
    assert "90.0%" in text  # the GPU's


def test_it_looks_once_a_second() -> None:
    waits: list[float] = []
    bus = MemoryBus()
    bus.put(keys.beat("a"), encode(beat("selfplay", "a", versions=PLAYED, phase_wall_search=1.0)), life_s=60)
    found = looks(partial(read_workers, bus), 3.0, waits.append)
    assert len(found) == 3
    assert waits == [1.0, 1.0]
    assert profile_of(found, "first")[0].rows[0].wall_share == 1.0


def test_the_command_names_the_broker_that_is_not_there(tmp_path: Path) -> None:
    nothing = CliRunner().invoke(app, ["profile", "first", "--set", f"home={str(tmp_path)!r}"])
    assert "no broker" in str(nothing.exception)
