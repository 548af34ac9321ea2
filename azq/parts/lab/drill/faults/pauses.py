"""What may take longer than any watch waits: a pause of everything, a slow start, a control plane or a disk that takes no writes.

No process may end meanwhile, and the daemon answers throughout.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from azq.errors import StateConflict
from azq.files import locked
from azq.host.brokers import BROKER_FOLDER
from azq.host.fronts import free_port
from azq.parts.lab.drill.disk import FILLER, fill
from azq.parts.lab.drill.faults.brokers import limit_memory
from azq.parts.lab.drill.scenarios import DISK, PROCESSES, InjectedFault, Scenario, fault, nothing
from azq.parts.lab.drill.system import READY_S, RUN, System
from azq.process.kin import Kin, Victim
from azq.process.proc import alive

PAUSES_S = {"pause": 15.0, "pause-long": 60.0}
AWAY_S = 120.0
SLOW_S = 12.0
ASK_EVERY_S = 1.0
ANSWER_S = 5.0  # of the daemon's, within which it counts as one
READY, NOT_READY = 200, 503

Ask = Callable[[str], int | None]
Lift = Callable[[], None]


@fault("pause", "all")
@fault("pause-long", "all")
def pause(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGSTOP to `azq up` and all below it, brokers too; the same processes have to continue afterwards."""
    before = _at_work(system, *system.brokers())
    lift = system.kin.signalled(signal.SIGSTOP, *tree(system.kin))
    return InjectedFault(lambda: _same(system, before), lasts_s=PAUSES_S[scenario.fault], lift=lift)


@fault("read-only", "broker-control")
@fault("no-memory", "broker-control")
@fault("away", "broker-control")
@fault("no-space", DISK)
def take_nothing(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """The control plane is away, or answers and takes no writes; on a full disk no process can write anything."""
    dies = ["broker-control"] if scenario.fault == "away" else []
    before, killed = _at_work(system, *(role for role in system.brokers() if role not in dies)), [system.working(role) for role in dies]
    hurt, meanwhile = HURTS[scenario.fault]
    watch, end = ReadyWatch(rest_of(system), probe=lambda: meanwhile(system)), hurt(system)

    def lift() -> None:
        try:
            watch.end()
        finally:
            end()

    return InjectedFault(
        lambda: _same(system, before) and all(system.replaced(victim.role, victim) for victim in killed), lasts_s=AWAY_S, lift=lift
    )


def _follow_nobody(system: System) -> Lift:
    """Makes the control plane a replica of a server that is not there."""
    with system.client() as client:
        client.replicaof("127.0.0.1", str(free_port(1)))

    def lift() -> None:
        with system.client() as client:
            client.replicaof("NO", "ONE")

    return lift


def _kill_for_long(system: System) -> Lift:
    """SIGKILL to the control plane, whose folder's lock is held, so that its successor cannot start; `azq up` looks after all else."""
    held, broker = contextlib.ExitStack(), system.working("broker-control")
    held.enter_context(locked(system.folder / BROKER_FOLDER / "control" / "lock"))
    system.kin.send(signal.SIGKILL, broker)
    return held.close


def _fill(system: System) -> Lift:
    fill(system.folder)
    return (system.folder / FILLER).unlink


HURTS: dict[str, tuple[Callable[[System], Lift], Callable[[System], object]]] = {  # and what is done once a second meanwhile
    "read-only": (_follow_nobody, lambda _: None),
    "no-memory": (lambda system: limit_memory(system, "control"), lambda _: None),
    "away": (_kill_for_long, lambda _: None),
    "no-space": (_fill, lambda system: fill(system.folder)),
}


@fault("slow-start", "daemon")
def start_slowly(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL to the daemon, and its follower is stopped for a while between its first look at the broker and READY."""
    while (injected := _slowed(system)) is None:
        pass
    return injected


def _slowed(system: System) -> InjectedFault | None:
    """None where the daemon listened before it could be stopped."""
    before, log = system.working("daemon"), system.log("daemon")
    system.kin.send(signal.SIGKILL, before)
    system.until(lambda: system.replaced("daemon", before), "another daemon", READY_S)
    daemon = system.working("daemon")
    lift = system.kin.signalled(signal.SIGSTOP, daemon)
    if log.says("listening"):
        lift()
        return None
    return InjectedFault(lambda: _same(system, [daemon]) and log.says("listening"), lasts_s=SLOW_S, lift=lift)


def tree(kin: Kin) -> list[Victim]:
    """An `azq up` and all below it, parents first."""
    victims = [kin.root]
    for parent in victims:
        victims += kin.below(parent)
    return victims


class ReadyWatch:
    """Asks a daemon once a second whether it is ready, in a thread, and counts the answers; None stands for none."""

    def __init__(self, url: str, ask: Ask | None = None, every_s: float = ASK_EVERY_S, probe: Callable[[], object] = nothing) -> None:
        self.answers: Counter[int | None] = Counter()
        self._probe = probe
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url, ask or readiness, every_s), name="ready watch", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Raises `StateConflict` where an answer was neither of the two, or it was always ready."""
        self._over.set()
        self._thread.join()
        if set(self.answers) - {READY, NOT_READY} or not self.answers[NOT_READY]:
            raise StateConflict(f"/readyz did not answer {READY} or {NOT_READY} throughout: {dict(self.answers)}")

    def _run(self, url: str, ask: Ask, every_s: float) -> None:
        while not self._over.wait(every_s):
            self._probe()
            self.answers[ask(url)] += 1


def readiness(url: str) -> int | None:
    """The status that `/readyz` answers; None without an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def rest_of(system: System) -> str:
    """Where the system's daemon listens, by its log."""
    text = (system.folder / RUN / "logs" / "daemon.log").read_text("utf-8", "replace")
    return str(re.findall(r"\blistening\b.*\burl=(http://[^\s']+)", text)[-1])


def _at_work(system: System, *brokers: str) -> list[Victim]:
    return [system.working(role) for role in (*PROCESSES, *brokers)]


def _same(system: System, before: Sequence[Victim]) -> bool:
    """Whether these processes work again; raises `StateConflict` where one ended."""
    if gone := [victim.role for victim in before if not alive(victim.pid)]:
        raise StateConflict(f"{', '.join(gone)} ended and should have waited; see {system.folder}")
    return all(system.pid(victim.role) == victim.pid for victim in before)
