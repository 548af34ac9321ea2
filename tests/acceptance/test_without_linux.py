"""`azq up` without /proc and prctl: it trains, mends what was killed, and leaves nothing behind when it is killed itself."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest
from without_linux import HIDDEN, why_not

import azq
from azq.process import apart
from azq.process.kin import Victim
from azq.process.proc import alive
from azq.process.start import AZQ
from azq.waiting import until

SMALL = ("search.num_simulations=4", "selfplay.games_in_flight=16", "learner.min_window=64", "learner.batch_size=64", "arena.every_s=0")
WITHIN_S = 240.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def test_it_trains_recovers_and_ends_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "AZQ", (*HIDDEN, *AZQ))
    with azq.Local("tic_tac_toe", settings=SMALL, folder=tmp_path) as run:
        run.until(partial(_learned_more, run, 100), "games that were learned from", WITHIN_S)
        for role in ("broker-control", "selfplay", "learner", "daemon"):
            before, victim = run.until(run.counts, "an answer", WITHIN_S).inserted, run.kin.processes()[role]
            run.kill(role)
            run.until(partial(_is_another, run, victim), f"another {role}", WITHIN_S)
            run.until(partial(_learned_more, run, before + 100), f"games after the end of {role}", WITHIN_S)
        run.until(partial(_balances, run), "a ledger that balances", WITHIN_S)
        everyone = [victim.process for victim in run.kin.processes().values()]
        everyone += [child for process in everyone for child in process.children()]
        run.kin.send(signal.SIGKILL, run.kin.root)
        until(lambda: not any(alive(process.pid) for process in everyone), f"the end of {everyone}", WITHIN_S)


def _learned_more(run: azq.Local, games: int) -> bool:
    counts = run.counts()
    return counts is not None and counts.inserted > games


def _balances(run: azq.Local) -> bool:
    counts = run.counts()
    return counts is not None and counts.balanced


def _is_another(run: azq.Local, victim: Victim) -> bool:
    now = run.kin.processes().get(victim.role)
    return now is not None and now != victim
