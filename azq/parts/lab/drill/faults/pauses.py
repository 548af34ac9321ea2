"""What may take longer than any watchdog waits: a pause of everything, or a control plane that is away.

No other process may end meanwhile, and the daemon answers throughout.
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
from azq.parts.lab.drill.scenarios import PROCESSES, InjectedFault, Scenario, fault
from azq.parts.lab.drill.system import RUN, System
from azq.process.kin import Kin, Victim
from azq.process.proc import alive

PAUSES_S = {"pause": 15.0, "pause-long": 60.0}
AWAY_S = 120.0
ASK_EVERY_S = 1.0
ANSWER_S = 5.0  # of the daemon's, within which it counts as one
READY, NOT_READY = 200, 503

Ask = Callable[[str], int | None]


@fault("pause", "all")
@fault("pause-long", "all")
def pause(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGSTOP to `azq up` and all below it, brokers too; the same processes have to continue afterwards."""
    before = _at_work(system, *system.brokers())
    lift = system.kin.signalled(signal.SIGSTOP, *tree(system.kin))
    return InjectedFault(lambda: _same(system, before), lasts_s=PAUSES_S[scenario.fault], lift=lift)


@fault("away", "broker-control")
def stay_away(system: System, scenario: Scenario, rng: random.Random) -> InjectedFault:
    """SIGKILL to the control plane, whose successor cannot start while its folder's lock is held; `azq up` looks after all else."""
    others, broker = _at_work(system, *(role for role in system.brokers() if role != scenario.role)), system.working(scenario.role)
    watch, lock = ReadyWatch(rest_of(system)), contextlib.ExitStack()
    lock.enter_context(locked(system.folder / BROKER_FOLDER / "control" / "lock"))
    system.kin.send(signal.SIGKILL, broker)

    def lift() -> None:
        with lock:
            watch.end()

    return InjectedFault(lambda: _same(system, others) and system.replaced(scenario.role, broker), lasts_s=AWAY_S, lift=lift)


def tree(kin: Kin) -> list[Victim]:
    """An `azq up` and all below it, parents first."""
    victims = [kin.root]
    for parent in victims:
        victims += kin.below(parent)
    return victims


class ReadyWatch:
    """Asks a daemon once a second whether it is ready, in a thread, and counts the answers; None stands for none."""

    def __init__(self, url: str, ask: Ask | None = None, every_s: float = ASK_EVERY_S) -> None:
        self.answers: Counter[int | None] = Counter()
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
            self.answers[ask(url)] += 1


def readiness(url: str) -> int | None:
    """The status that `/readyz` answers; None without an answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    return None


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
