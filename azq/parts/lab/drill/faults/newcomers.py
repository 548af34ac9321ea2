"""Who comes to a system that works: a second learner, one for a lost host, a worker whose clock is wrong, a machine that is sent away."""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from azq.config.loading import APART
from azq.errors import ExitCode, StateConflict
from azq.host.users import in_roles
from azq.ledger import Ledger
from azq.ledger.types import JobState
from azq.parts.lab.drill.hosts import metadata
from azq.parts.lab.drill.scenarios import MACHINE, Harm, Scenario, fault
from azq.parts.lab.drill.system import RUN, System, ended
from azq.process.apart import NO_SETTING, environment, start
from azq.process.proc import children
from azq.process.start import AZQ, PYTHON, machine_environment
from azq.status.spending import HOST
from azq.wire.keys import Role

LIVES_S = 60.0  # a second learner may wait for a dead one's place, and has to import all that it needs
WRITTEN = ("segments", "checkpoints", "weights")  # what a learner makes in its folder
JUMPS_AFTER_S, JUMPS_BY_S = 2.0, 3600.0  # of a worker's life
OF_UP = ("logs", "run.toml")  # in a run's folder: what `azq up` has open there, or reads
END_S = 30.0
JOINS_S, GOES_S = 90.0, 30.0
NOTICE_EVERY_S = 0.5  # between two questions to the provider: a quarter of the usual


@fault("second", "learner")
@fault("second-elsewhere", "learner")
def second_learner(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """`azq learner` on the run's own folder, or on another one as on a second host. Raises `StateConflict` where it does not give way."""
    first, elsewhere = system.working("learner"), system.folder / f"elsewhere-{time.monotonic_ns()}"
    folder = _folder_of_run(system, elsewhere) if scenario.fault == "second-elsewhere" else contextlib.nullcontext()
    with folder, ended(_start(system, "learner", "second-learner", *AZQ, "learner", "--run", RUN)) as second:
        code = system.until(second.poll, "the end of a second learner", LIVES_S)
    if code != ExitCode.CONFLICT:
        raise StateConflict(f"a second learner ended with exit code {code} and not with {int(ExitCode.CONFLICT)}")
    if written := [path for name in WRITTEN for path in (elsewhere / name).rglob("*") if path.is_file()]:
        raise StateConflict(f"a second learner wrote {written[0]}")
    return Harm(lambda: system.pid("learner") == first.pid)


@fault("host-lost", "learner")
def lose_host(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """SIGKILL to the learner, and all that it had on disk is gone; another one goes on in an empty folder, as on another host."""
    before, counts = system.working("learner"), system.until(system.counts, "the ledger", LIVES_S)
    lost, folder = system.run_folder, system.folder / f"host-{time.monotonic_ns()}"
    with system.client() as client:
        ledger = Ledger(client)
        ledger.update_run(msgspec.structs.replace(ledger.run(RUN).record, directory=str(folder)))
    system.kin.send(signal.SIGKILL, before)
    for path in [path for path in lost.iterdir() if path.name not in OF_UP]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    system.move_run(folder)
    return Harm(lambda: system.replaced("learner", before) and system.counted(lambda now: now.inserted > counts.inserted))


@fault("clock-jump", "selfplay")
def jump(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """Starts a worker whose wall clock jumps by an hour; healed once games that it finished by that clock are in the learner's log."""
    by_s = rng.choice((-JUMPS_BY_S, JUMPS_BY_S))
    skewed = (*PYTHON, "-m", "azq.parts.lab.drill.skewed_clock", str(JUMPS_AFTER_S), str(by_s))
    worker = _start(system, "worker", "skewed", *skewed, "worker", "--queues", "selfplay.cpu")

    def healed() -> bool:
        system.evidence.read()
        finished_ms = [system.evidence.finished_ms(f"{socket.gethostname()}:{pid}") for pid in children(worker.pid)]
        return any(at_ms and abs(at_ms / 1000 - time.time() - by_s) < JUMPS_BY_S / 2 for at_ms in finished_ms)

    def end() -> None:
        with ended(worker), contextlib.suppress(subprocess.TimeoutExpired):
            worker.send_signal(signal.SIGTERM)
            worker.wait(END_S)

    return Harm(healed, lift=end)


@fault("revoke", MACHINE)
def revoke(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A machine that joined is sent away while it plays; raises `StateConflict` where it ends otherwise than by being refused."""
    with _machine(system, rng) as (name, machine):
        _azq(system, "fleet", "revoke", name)
        code = system.until(machine.poll, f"the end of {name}", GOES_S)
    if code != ExitCode.BROKER_REFUSED:
        raise StateConflict(f"a machine that was sent away ended with exit code {code} and not with {int(ExitCode.BROKER_REFUSED)}")
    return Harm(lambda: len(_players(system)) == 1)


@fault("preempt", MACHINE)
def preempt(system: System, scenario: Scenario, rng: random.Random) -> Harm:
    """A machine that joined hears that its provider takes it back; healed once it holds no job any more.

    Raises `StateConflict` at the end where it did not say that it leaves, or did not end by itself.
    """
    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(metadata())
        settings = {"AZQ_MACHINE__METADATA_URL": provider.url, "AZQ_MACHINE__NOTICE_EVERY_S": str(NOTICE_EVERY_S)}
        name, machine = stack.enter_context(_machine(system, rng, settings))
        said: set[str] = set()

        def healed() -> bool:
            said.update(beat.leaving for beat in system.beats(HOST))
            return len(_players(system)) == 1

        def end() -> None:
            with opened:
                code = system.until(machine.poll, f"the end of {name}", GOES_S)
            if code != ExitCode.OK or not any(said):
                raise StateConflict(f"{name} ended with exit code {code} and said of leaving: {sorted(said)}")

        provider.announce()
        harm = Harm(healed, lift=end)
        opened = stack.pop_all()
        return harm


@contextlib.contextmanager
def _machine(system: System, rng: random.Random, settings: Mapping[str, str] = NO_SETTING) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A machine that joined and plays, and its name."""
    name = f"box-{rng.randrange(1 << 24):06x}"
    told = _azq(system, "join-token", "--name", name, "--roles", "selfplay")
    with ended(_join(system, name, told, settings)) as machine:
        system.until(lambda: len(_players(system)) > 1, f"jobs at {name} and here", JOINS_S)
        yield name, machine


@contextlib.contextmanager
def _folder_of_run(system: System, folder: Path) -> Iterator[None]:
    """The run's record names another folder for a while; the learner at work read it when it began."""
    with system.client() as client:
        ledger = Ledger(client)
        record = ledger.run(RUN).record
        ledger.update_run(msgspec.structs.replace(record, directory=str(folder)))
        try:
            yield
        finally:
            ledger.update_run(record)


def _start(system: System, role: Role, log: str, *command: str) -> subprocess.Popen[bytes]:
    """One more process of a role at the system's brokers."""
    env = {APART: "1", **machine_environment(in_roles(system.config())(role), role)}
    return start(command, system.folder, system.folder / RUN / "logs" / f"{log}.log", env)


def _join(system: System, name: str, told: dict[str, Any], settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
    folder = system.folder / name
    folder.mkdir()
    options = ["--foreground", "--folder", str(folder), "--roles", "selfplay", "-c", "1"]
    env = {"AZQ_HOME": str(folder), "AZQ_JOIN_TOKEN": told["token"], **settings}
    return start([*PYTHON, "-m", *shlex.split(told["command"]), *options], folder, folder / "join.log", env)


def _azq(system: System, *arguments: str) -> dict[str, Any]:
    env, command = environment() | {"AZQ_HOME": str(system.folder)}, [*AZQ, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=JOINS_S, env=env, cwd=system.folder)
    if done.returncode:
        raise StateConflict(f"azq {' '.join(arguments)} ended with exit code {done.returncode}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _players(system: System) -> set[str]:
    """Who plays just now on this machine."""
    with system.client() as client:
        leased = [view for view in Ledger(client).jobs(RUN) if view.state is JobState.LEASED]
    return {view.owner for view in leased if view.owner.startswith(f"{socket.gethostname()}:")}
