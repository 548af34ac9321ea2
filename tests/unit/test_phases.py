"""The stopwatch: phases add up, nest, and tell shares of the last seconds; marks on a device are read once it passed them."""

from __future__ import annotations

import time

import pytest

from azq import phases
from azq.inference.device.cuda import DeviceClock
from azq.phases import CPU, DEVICE, OTHER, WALL, Phases, beside, merged


class Clock:
    """Wall and CPU time that move when told."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 100.0

    def pass_(self, wall_s: float, cpu_s: float = 0.0) -> None:
        self.wall_s += wall_s
        self.cpu_s += cpu_s


class Device:
    """A queue of work whose marks are passed when it is told to."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.passed_ms = 0.0

    def make(self) -> Mark:
        return Mark(self)


class Mark:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = self.device.now_ms

    def query(self) -> bool:
        return self.at_ms <= self.device.passed_ms

    def synchronize(self) -> None:
        self.device.passed_ms = max(self.device.passed_ms, self.at_ms)

    def elapsed_time(self, end: Mark) -> float:
        return end.at_ms - self.at_ms


def stopwatch(clock: Clock, device: Device | None = None) -> Phases:
    make = None if device is None else device.make
    return Phases(clock=lambda: clock.wall_s, cpu_clock=lambda: clock.cpu_s, make_event=make)  # type: ignore[arg-type]


def _fail_after(clock: Clock, wall_s: float) -> None:
    clock.pass_(wall_s)
    raise KeyError


def test_an_inner_phase_takes_its_time_from_the_outer_one_and_nothing_is_lost() -> None:
    clock = Clock()
    watch = stopwatch(clock)
    clock.pass_(1.0)
    with watch("wait"):
        clock.pass_(2.0, 0.5)
        with watch("encode"):
            clock.pass_(4.0, 4.0)
        clock.pass_(8.0)
    shares = watch.shares()
    assert watch.sums() == {
        WALL + OTHER: 1.0, WALL + "wait": 10.0, WALL + "encode": 4.0, CPU + OTHER: 0.0, CPU + "wait": 0.5, CPU + "encode": 4.0,
    }  # fmt: skip
    assert sum(value for name, value in shares.items() if name.startswith(WALL)) == pytest.approx(1.0, abs=1e-3)
    assert shares[CPU + "encode"] == pytest.approx(4 / 15, abs=1e-3)


def test_a_phase_that_raises_ends() -> None:
    clock = Clock()
    watch = stopwatch(clock)
    with pytest.raises(KeyError), watch("search"):
        _fail_after(clock, 1.0)
    clock.pass_(5.0)
    watch.shares()
    assert watch.sums()[WALL + "search"] == 1.0
    assert watch.sums()[WALL + OTHER] == 5.0


def test_shares_forget_what_is_long_past() -> None:
    clock = Clock()
    watch = stopwatch(clock)
    with watch("idle"):
        clock.pass_(100.0)
    for _ in range(12):
        with watch("search"):
            clock.pass_(1.0)
        shares = watch.shares()
    assert shares[WALL + "search"] == pytest.approx(1.0, abs=1e-3)
    assert shares[WALL + "idle"] == 0.0


def test_time_between_two_slices_counts_for_nothing() -> None:
    clock = Clock()
    watch = stopwatch(clock)
    with watch("search"):
        clock.pass_(3.0)
    clock.pass_(50.0)
    watch.restart()
    with watch("search"):
        clock.pass_(1.0)
    clock.pass_(1.0)
    assert watch.shares()[WALL + "search"] == 0.5


def test_device_time_is_read_only_once_the_device_has_passed_the_marks() -> None:
    clock, device = Clock(), Device()
    watch = stopwatch(clock, device)
    with watch("forward"):
        device.now_ms = 30.0
    with watch("backward"):
        device.now_ms = 100.0
    assert DEVICE + "forward" not in watch.sums()
    device.passed_ms = 99.0
    assert watch.sums()[DEVICE + "forward"] == pytest.approx(0.03)
    assert DEVICE + "backward" not in watch.sums()
    device.passed_ms = 100.0
    assert watch.sums()[DEVICE + "backward"] == pytest.approx(0.07)


def test_batches_that_overlap_on_a_device_count_once() -> None:
    device = Device()
    clock = DeviceClock(device.make)  # type: ignore[arg-type]
    marks = {}
    for at_ms in (0, 10, 15, 25, 40, 50):
        device.now_ms = at_ms
        marks[at_ms] = clock.mark()
    busy_s = []
    for begin, end in ((0, 15), (10, 25), (40, 50)):
        clock.count(marks[begin], marks[end])
        busy_s.append(clock.busy_s)
    assert busy_s == pytest.approx([0.015, 0.025, 0.035])


def test_waiting_inside_a_phase_is_booked_where_it_belongs() -> None:
    clock = Clock()
    watch = stopwatch(clock)
    with watch("backward"):
        clock.pass_(3.0)
    watch.move("backward", "sync", 1.0)
    assert watch.sums()[WALL + "backward"] == 2.0
    assert watch.sums()[WALL + "sync"] == 1.0


def test_several_loops_are_one_by_mean_shares_and_summed_cores() -> None:
    both = merged([{WALL + "search": 0.5, CPU + "search": 1.5}, {WALL + "search": 0.7, CPU + "search": 2.0, WALL + "wait": 0.3}])
    assert both == pytest.approx({WALL + "search": 0.6, CPU + "search": 3.5, WALL + "wait": 0.3})
    assert merged([]) == {}


def test_a_threads_cpu_is_its_own_and_not_that_of_the_loop_beside_it() -> None:
    loop = {"phase_wall_backward": 0.8, "phase_cpu_backward": 1.2, "phase_cpu_load": 0.4}
    both = beside(loop, "intake", 0.4)
    assert both == pytest.approx({"phase_wall_backward": 0.8, "phase_cpu_backward": 0.9, "phase_cpu_load": 0.3, "phase_cpu_intake": 0.4})
    assert beside({}, "intake", 0.0) == {"phase_cpu_intake": 0.0}


def test_the_figures_of_a_heartbeat_are_found_again() -> None:
    rates = {"games_per_s": 3.0, WALL + "search": 0.5, DEVICE + "forward": 0.9}
    assert phases.of_heartbeat(rates) == {WALL + "search": 0.5, DEVICE + "forward": 0.9}
    assert phases.part(rates, DEVICE) == {"forward": 0.9}


def test_a_switch_costs_little() -> None:
    watch, rounds, taken_s = Phases(), 2_000, []
    for _ in range(10):
        begun_s = time.thread_time()
        for _ in range(rounds):
            with watch("search"):
                pass
        taken_s.append((time.thread_time() - begun_s) / rounds / 2)
    assert min(taken_s) < 5e-6  # CPU-seconds a switch; below one millionth on a quiet machine
