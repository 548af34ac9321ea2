"""`azq up` without /proc and prctl: it trains, mends what was killed, and leaves nothing behind when it is killed itself."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from recovering import SMALL, balances, recovers, trains
from waiting import PATIENCE_S
from without_linux import HIDDEN, why_not

import azq
from azq.process import apart
from azq.process.proc import alive
from azq.process.start import AZQ
from azq.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_it_trains_recovers_and_ends_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "AZQ", (*HIDDEN, *AZQ))
    with azq.Local("tic_tac_toe", settings=SMALL, folder=tmp_path) as run:
        trains(run, 100)
        for role in ("broker-control", "selfplay", "learner", "daemon"):
            forked = run.kin.processes()[role].process.children()
            recovers(run, role)
            until(lambda: not any(alive(child.pid) for child in forked), f"the end of {forked}", PATIENCE_S)  # noqa: B023
        balances(run)
        everyone = [victim.process for victim in run.kin.processes().values()]
        everyone += [child for process in everyone for child in process.children()]
        run.kin.send(signal.SIGKILL, run.kin.root)
        until(lambda: not any(alive(process.pid) for process in everyone), f"the end of {everyone}", PATIENCE_S)
