"""Processes that train together with the learner: killed, stopped for a while, slowed down."""

from __future__ import annotations

import os
import random
import signal

from azq.bus.redis import RedisBus
from azq.drill.faults.signals import braked
from azq.drill.scenarios import RANK, Harm, Scenario, fault
from azq.drill.system import READY_S, RUN, System, signalled
from azq.errors import StateConflict
from azq.process.proc import children, command
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import LearnerStatus

HELD_S = 10.0  # several times `learner.rank_timeout_s` of these drills


@fault("kill-rank", RANK)
def kill_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL: the learner goes on alone until its launcher's next one has joined."""
    pid, before = _at_work(system)
    os.kill(pid, signal.SIGKILL)
    return Harm(lambda: _lost(system) > before and _all_train(system))


@fault("hold-rank", RANK)
def hold_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGSTOP for longer than others wait for it: it is dropped, and joins again when it goes on."""
    pid, before = _at_work(system)
    return Harm(lambda: _lost(system) > before and _all_train(system), lasts_s=HELD_S, lift=signalled(signal.SIGSTOP, pid))


@fault("slow-rank", RANK)
def slow_rank(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Lets it work a tenth of the time, which nobody is dropped for; raises `StateConflict` at the end where it was."""
    pid, before = _at_work(system)
    release = braked(pid)

    def lift() -> None:
        release()
        if (lost := _lost(system) - before) > 0:
            raise StateConflict(f"{lost} ranks were dropped for being slow")

    return Harm(lambda: _all_train(system), lasts_s=HELD_S, lift=lift)


def _at_work(system: System) -> tuple[int, int]:
    """The process of a rank that trains, and how many were lost before."""
    system.until(lambda: _all_train(system), "all ranks train", READY_S)
    learner = system.working("learner")
    (rank, *_) = [child for child in children(learner) if "learner" in command(child)]
    return rank, _lost(system)


def _all_train(system: System) -> bool:
    status = _status(system)
    return status is not None and status.ranks_healthy == status.ranks


def _lost(system: System) -> int:
    status = _status(system)
    return status.rank_failures if status is not None else 0


def _status(system: System) -> LearnerStatus | None:
    frame = system.asked(lambda client: RedisBus(client).get(keys.learner_status(RUN)))
    return decode(frame, LearnerStatus) if frame else None
