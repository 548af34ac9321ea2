"""What may kill an inference worker is noted in the control plane before it is begun and struck out after it: a note left is a death."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

from azq.bus.base import Bus
from azq.errors import BrokerError, DeviceError, EvaluationRefused
from azq.process.breaker import CircuitBreaker
from azq.waiting import Backoff

LIFE_S = 600.0  # of a note: after so long it is tried again, it may have been mended
MUTE = Backoff(10.0, 10.0)  # without notes after the control plane failed: evaluation goes on without it


class Verdict(Enum):
    """What to do with something that may kill."""

    TRY = auto()
    WAIT = auto()  # somebody is at it, or died of it a moment ago
    REFUSE = auto()


@dataclass(frozen=True, slots=True)
class Patience:
    """How many notes may be left (`deaths`) before a thing is refused, and how old a note must be to count as left (`wait_s`)."""

    deaths: int
    wait_s: float


REQUEST = Patience(deaths=2, wait_s=5.0)  # evaluated alone; far longer than a batch takes
LOAD = Patience(deaths=3, wait_s=0.0)  # a host's own; a worker that starts there again cannot meet itself


def judge(marks: int, age_s: float, patience: Patience) -> Verdict:
    """The verdict on what was noted so often, the last time `age_s` ago."""
    if marks == 0:
        return Verdict.TRY
    if age_s < patience.wait_s:
        return Verdict.WAIT
    return Verdict.REFUSE if marks >= patience.deaths else Verdict.TRY


@dataclass(eq=False)
class Trials:
    """The notes of one kind as one worker sees and writes them; used by one thread."""

    control: Bus
    worker: str
    patience: Patience
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._seen: dict[str, tuple[bytes, float]] = {}  # key -> a note, and when it was met first: no two clocks are compared
        self._plane = CircuitBreaker(BrokerError, ("trials_not_noted", "trials_noted"), backoff=MUTE, clock=self.clock_s)

    def begin(self, key: str) -> Verdict:
        """Whether to try what this key names, which is then noted; `end` strikes it out. Without the control plane nothing is noted."""
        return self._plane.attempt(partial(self._begin, key)) or Verdict.TRY

    def _begin(self, key: str) -> Verdict:
        mark = self.control.get(key)
        marks = _number(mark)
        verdict = judge(marks, self._age_s(key, mark), self.patience)
        if verdict is Verdict.TRY:
            self.control.put(key, f"{marks + 1} {self.worker}".encode(), life_s=LIFE_S)
        return verdict

    def end(self, key: str) -> None:
        """It was no death."""
        self._seen.pop(key, None)
        self._plane.attempt(partial(self.control.delete, key))

    @contextmanager
    def survived(self, key: str) -> Iterator[None]:
        """Ends what was begun, however it ends but with the device or with the process."""
        try:
            yield
        except DeviceError:
            raise
        except BaseException:
            self.end(key)
            raise
        self.end(key)

    @contextmanager
    def noted(self, key: str, what: str) -> Iterator[None]:
        """Both in one; `EvaluationRefused` names `what` where it has killed too often."""
        if self.begin(key) is Verdict.REFUSE:
            remedy = f"mend it; it is tried again {LIFE_S / 60:.0f} minutes after the last time"
            raise EvaluationRefused(f"{what} has killed its inference worker {self.patience.deaths} times here; {remedy}")
        with self.survived(key):
            yield

    def _age_s(self, key: str, mark: bytes | None) -> float:
        now_s = self.clock_s()
        if mark is None:
            self._seen.pop(key, None)
            return 0.0
        before = self._seen.get(key)
        if before is None or before[0] != mark:
            before = self._seen[key] = mark, now_s
        return now_s - before[1]


def _number(mark: bytes | None) -> int:
    """How often it was noted; an unreadable note counts as one."""
    if mark is None:
        return 0
    number = mark.partition(b" ")[0]
    return int(number) if number.isdigit() and len(number) < 10 else 1
