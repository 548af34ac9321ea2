"""A learner that is away: self-play stalls at its limit, the broker's memory stays where it is, and all resumes by itself."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from waiting import until
from worker_doubles import RUN, Fleet

from azq.ledger.types import JobState, RunState

LIMIT = 200  # games
IN_FLIGHT = 16
AWAY_S = 6.0
DAEMON = (
    "import sys; from azq.config import load; from daemon.api.rest import serving; from daemon.main import main; "
    "sys.exit(main(load(None, ['daemon.port=0']), lambda: serving))"
)
LEARNER = f"import sys; from azq.config import load; from workers.learner import main; sys.exit(main(load(), {RUN!r}))"


@pytest.fixture(autouse=True)
def run(fleet: Fleet) -> None:
    fleet.create_run(games_in_flight=IN_FLIGHT, max_waiting_games=LIMIT, slice_s=60.0)


def memory(fleet: Fleet) -> int:
    facts: Any = fleet.client.info("memory")
    return int(facts["used_memory"])


def leased(fleet: Fleet) -> bool:
    return any(view.state is JobState.LEASED for view in fleet.ledger.jobs(RUN))


@pytest.mark.release
def test_self_play_stalls_without_a_learner_and_resumes_with_one(fleet: Fleet) -> None:
    fleet.start("selfplay.cpu")
    fleet._spawn(DAEMON)
    until(lambda: fleet.ledger.counts(RUN).in_transit >= LIMIT and not fleet.ledger.jobs(RUN), "stall")
    stalled, used = fleet.ledger.counts(RUN), memory(fleet)
    assert stalled.in_transit < LIMIT + 2 * IN_FLIGHT  # a harvest of the job under way, and one of the job that waited behind it
    end = time.monotonic() + AWAY_S
    while time.monotonic() < end:
        assert fleet.ledger.counts(RUN).in_transit == stalled.in_transit
        assert memory(fleet) < used + 512 * 1024
        threading.Event().wait(0.2)
    assert stalled.balanced
    fleet._spawn(LEARNER)
    until(lambda: fleet.ledger.counts(RUN).inserted > 2 * LIMIT, "games made after the learner came back")
    fleet.ledger.set_run_state(RUN, RunState.PAUSED)
    until(lambda: not leased(fleet) and fleet.ledger.counts(RUN).in_transit == 0, "the end")
    counts = fleet.ledger.counts(RUN)
    assert counts.balanced
    assert counts.duplicates_dropped == 0
