"""Where a loop's time goes: a stopwatch with one phase running at any moment, so that the phases of a thread add up to its time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

OTHER = "other"  # whatever runs while no phase was named
SELFPLAY = ("search", "encode", "wait", "transport", "ledger", OTHER)
INFERENCE = ("collect", "copy", "forward", "reply", "weights", "idle", OTHER)
LEARNER = ("load", "forward", "loss", "backward", "update", "sync", "intake", "publish", "checkpoint", "idle", OTHER)
OF_ROLE: Mapping[str, tuple[str, ...]] = {"selfplay": SELFPLAY, "inference": INFERENCE, "learner": LEARNER}
WALL, CPU, DEVICE = "phase_wall_", "phase_cpu_", "phase_device_"  # names in heartbeats: the prefix, then the phase
PREFIXES = (WALL, CPU, DEVICE)
WINDOW_S = 10.0
PENDING_MARKS = 256  # on the device; more than two steps' worth

Sums = Mapping[str, float]


class DeviceEvent(Protocol):
    """A timing mark on a device's queue of work: `torch.cuda.Event(enable_timing=True)` or its double."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: DeviceEvent) -> float: ...


class Span:
    """Lets one phase run for the length of a `with` block; the phase around it goes on afterwards."""

    __slots__ = ("_name", "_phases")

    def __init__(self, phases: Phases, name: str) -> None:
        self._phases = phases
        self._name = name

    def __enter__(self) -> Self:
        self._phases._enter(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._phases._leave()


class Phases:
    """Seconds by phase of one thread: wall, CPU of the whole process, and a device's own time where `make_event` is given.

    `with phases("search"): ...` runs a phase; phases nest, and the inner one's time is not the outer one's. A switch costs two reads
    of the clock, below a microsecond. Device time is that between two marks on the device's queue, its waiting included, so it
    says where a device spends its day and not how busy it is.
    """

    def __init__(
        self,
        *,
        make_event: Callable[[], DeviceEvent] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._make_event = make_event
        self._stack = [OTHER]
        self._spans: dict[str, Span] = {}
        self._wall: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self._device: dict[str, float] = {}
        self._marks: deque[tuple[str, DeviceEvent]] = deque()  # the phase that begins there
        self._at_s, self._at_cpu_s = clock(), cpu_clock()
        self._window: deque[tuple[float, dict[str, float]]] = deque([(self._at_s, {})])
        self.on_switch: Callable[[], object] = lambda: None  # called whenever a phase begins or ends: work gets on

    def __call__(self, name: str) -> Span:
        """The block that runs a phase."""
        span = self._spans.get(name)
        if span is None:
            span = self._spans[name] = Span(self, name)
        return span

    def add_device(self, name: str, seconds: float) -> None:
        """Counts device time that was measured elsewhere."""
        self._device[name] = self._device.get(name, 0.0) + seconds

    def move(self, name: str, to: str, seconds: float) -> None:
        """Books wall time of one phase under another."""
        self._wall[name] = self._wall.get(name, 0.0) - seconds
        self._wall[to] = self._wall.get(to, 0.0) + seconds

    def restart(self) -> None:
        """Counts nothing of the time since the last switch: the loop did not run."""
        self._at_s, self._at_cpu_s = self._clock(), self._cpu_clock()
        self._window = deque([(self._at_s, self.sums())])

    def sums(self) -> dict[str, float]:
        """Seconds since the start under their names in heartbeats; the running phase counts up to its last switch."""
        self._drain()
        tables = ((WALL, self._wall), (CPU, self._cpu), (DEVICE, self._device))
        return {prefix + name: seconds for prefix, table in tables for name, seconds in table.items()}

    def shares(self) -> dict[str, float]:
        """Seconds per second over the last ten: shares of wall time, CPU cores, shares of the device's time."""
        now_s, now = self._switched(self._stack[-1]), self.sums()
        self._window.append((now_s, now))
        while len(self._window) > 2 and now_s - self._window[1][0] > WINDOW_S:
            self._window.popleft()
        then_s, then = self._window[0]
        return {name: round((total - then.get(name, 0.0)) / max(now_s - then_s, 1e-9), 4) for name, total in now.items()}

    def _enter(self, name: str) -> None:
        self._switched(name)
        self._stack.append(name)
        self.on_switch()

    def _leave(self) -> None:
        self._switched(self._stack[-2])
        self._stack.pop()
        self.on_switch()

    def _switched(self, following: str) -> float:
        """Books the time since the last switch; returns the moment."""
        name, now_s, cpu_s = self._stack[-1], self._clock(), self._cpu_clock()
        self._wall[name] = self._wall.get(name, 0.0) + now_s - self._at_s
        self._cpu[name] = self._cpu.get(name, 0.0) + cpu_s - self._at_cpu_s
        self._at_s, self._at_cpu_s = now_s, cpu_s
        if self._make_event is not None:
            self._mark(following, self._make_event)
        return now_s

    def _mark(self, following: str, make_event: Callable[[], DeviceEvent]) -> None:
        event = make_event()
        event.record()
        self._marks.append((following, event))
        if len(self._marks) > PENDING_MARKS:
            self._drain()

    def _drain(self) -> None:
        """Books the marks that the device has passed; never waits for it."""
        while len(self._marks) > 1 and self._marks[1][1].query():
            name, begun = self._marks.popleft()
            self.add_device(name, begun.elapsed_time(self._marks[0][1]) / 1e3)


def merged(shares: Sequence[Sums]) -> dict[str, float]:
    """Several loops as one: means of their shares of time, sums of their CPU cores; {} for none."""
    names = dict.fromkeys(name for loop in shares for name in loop)
    return {
        name: sum(loop.get(name, 0.0) for loop in shares) / (1 if name.startswith(CPU) else sum(name in loop for loop in shares))
        for name in names
    }


def beside(loop: Sums, name: str, cores: float) -> dict[str, float]:
    """A loop's shares, with the CPU of a thread beside it as one more phase, taken from the loop's phases in proportion."""
    together = sum(part(loop, CPU).values())
    left = max(0.0, 1.0 - cores / together) if together else 1.0
    return {phase: share * left if phase.startswith(CPU) else share for phase, share in loop.items()} | {CPU + name: cores}


def of_heartbeat(rates: Sums) -> dict[str, float]:
    """The phase figures among a heartbeat's rates."""
    return {name: value for name, value in rates.items() if name.startswith(PREFIXES)}


def part(figures: Sums, prefix: str) -> dict[str, float]:
    """The figures under one of the prefixes, by phase."""
    return {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}
