"""Records what azq's page of plugs replays: one simulated course without faults, and what becomes of it after each fault at some moments.

Usage: plug.py > azq/web/plug/plug.json
"""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path

from azq import logs
from azq.parts.sim.actors import RUN
from azq.parts.sim.books import Kept, judge
from azq.parts.sim.faults import LONGEST_FULL_S, Fault
from azq.parts.sim.simulation import SeedRun

SEED, SECONDS, MOMENTS = 8, 40, range(4, 29, 4)
PROCESSES = ("daemon-1", "daemon-2", "worker-1", "worker-2", "worker-3", "learner-1", "learner-2")
SEEN_S = 2  # a killed worker counts as dead for so long: it is started again sooner than a person sees
PLUGS = {"kill": "Kill a worker", "freeze": "Hang the learner", "broker_restart": "Cut the broker off", "disk_full": "Fill the disk"}


def states(run: SeedRun) -> str:
    """A letter for each process, the broker and the disk; of two daemons and two learners one stands by, which starts again and again."""
    world, letters = run.world, ""
    killed = [world.actors[fault.pick] for fault in run.faults if fault.kind == "kill" and 0 < world.monotonic() - fault.at_s <= SEEN_S]
    for actor in (actor for actor in world.actors if actor.name in PROCESSES):
        gone = "x" if actor.name.startswith("worker") else "s"
        letters += gone if actor.running is None or actor in killed else "z" if actor.frozen_until_ns > world.now_ns else "."
    full = any(0 <= world.monotonic() - fault.at_s < LONGEST_FULL_S * fault.amount for fault in run.faults if fault.kind == "disk_full")
    return letters + ("d" if run.network._down_until_ns > world.now_ns else ".") + ("f" if full else ".")


def frame(run: SeedRun) -> list[str | int]:
    """Processes; games begun, in play, on their way, on disk, given up, lost, twice: each counted by itself."""
    kept = Kept.read(RUN, run.network.broker.keys, run.site.segments)
    verdict = judge(run.site.books, kept, rolled_back=False)
    stored = {uid for uid, _ in kept.log}
    way = {uid for uid, _ in kept.waiting} - stored
    return [states(run), kept.opened, len(kept.open), len(way), len(stored), len(kept.abandoned), verdict.lost, verdict.doubled]


def course(*faults: Fault) -> list[list[str | int]]:
    """A frame for each second, from the fault's on. The operator leaves the run alone."""
    frames: list[list[str | int]] = []
    with tempfile.TemporaryDirectory() as folder:
        run = SeedRun(SEED, faults, Path(folder))
        run.site.meddles = False
        for second in range(SECONDS):
            run.world.at(float(second), lambda: frames.append(frame(run)))
        run.run(float(SECONDS))
    return frames[round(faults[0].at_s) if faults else 0 :]


def main() -> None:
    logs.setup("plug", level=logging.CRITICAL)
    courses = {"": course()}
    for moment in MOMENTS:
        for plug in PLUGS:
            place = 3 if plug == "kill" else 6
            courses[f"{plug} {moment}"] = course(Fault(float(moment), plug, place, 0.6))
    record = {"names": [*PROCESSES, "broker", "disk"], "moments": list(MOMENTS), "plugs": PLUGS, "courses": courses}
    print(json.dumps(record, separators=(",", ":")))


main()
