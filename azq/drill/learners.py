"""A second learner of a run that has one: it has to go with `CONFLICT`, and to write nothing."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from azq.drill.harm import Harm
from azq.drill.scenarios import Scenario
from azq.drill.system import RUN, System
from azq.errors import ExitCode, StateConflict
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.process.start import child_environment

LIVES_S = 60.0  # it may wait for a dead learner's place, and has to import all that it needs
WRITTEN = ("segments", "checkpoints", "weights")  # what a learner makes in its folder


def second_learner(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """`azq learner` on the run's own folder, or on another one as on a second host. Raises `StateConflict` where it does not give way."""
    first = system.until(lambda: system.pid("learner"), "the learner at work", LIVES_S)
    elsewhere = system.folder / f"elsewhere-{time.monotonic_ns()}"
    with _folder_of_run(system, elsewhere if scenario.fault == "second-elsewhere" else None):
        code = _run_learner(system)
    if code != ExitCode.CONFLICT:
        raise StateConflict(f"a second learner ended with exit code {code} and not with {int(ExitCode.CONFLICT)}")
    if written := _written(elsewhere):
        raise StateConflict(f"a second learner wrote {written[0]}")
    return Harm(lambda: system.pid("learner") == first)


@contextmanager
def _folder_of_run(system: System, folder: Path | None) -> Iterator[None]:
    """The run's record names another folder for a while; the learner at work read it when it began."""
    if folder is None:
        yield
        return
    with system.client() as client:
        ledger = Ledger(client)
        record = ledger.run(RUN).record
        ledger.update_run(msgspec.structs.replace(record, directory=str(folder)))
        try:
            yield
        finally:
            ledger.update_run(record)


def _run_learner(system: System) -> int:
    env = child_environment(in_roles(system.config())("learner"), "learner")
    with (system.folder / RUN / "logs" / "second-learner.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "azq", "learner", "--run", RUN], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
        )
    try:
        return system.until(process.poll, "the end of a second learner", LIVES_S)
    finally:
        process.kill()
        process.wait()


def _written(folder: Path) -> list[Path]:
    return [path for name in WRITTEN for path in (folder / name).rglob("*") if path.is_file()]
