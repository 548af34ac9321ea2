"""What may kill is noted before it is begun; notes that stay are deaths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.bus.memory import MemoryBus
from azq.errors import BrokerUnavailable, DeviceError, EvaluationRefused
from azq.inference.trials import LIFE_S, LOAD, MUTE_S, REQUEST, Patience, Trials, Verdict, judge

KEY = "azq:{r1}:trial:x"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bus(clock: Clock) -> MemoryBus:
    return MemoryBus(clock=clock)


def worker(bus: MemoryBus, clock: Clock, patience: Patience = REQUEST) -> Trials:
    return Trials(bus, "inference@h:1", patience, clock)


@given(st.integers(0, 9), st.floats(0, 20), st.integers(1, 4), st.floats(0, 10))
def test_a_verdict_follows_from_notes_and_their_age(notes: int, age_s: float, deaths: int, wait_s: float) -> None:
    verdict = judge(notes, age_s, Patience(deaths, wait_s))
    assert (verdict is Verdict.WAIT) == (notes > 0 and age_s < wait_s)
    assert (verdict is Verdict.REFUSE) == (notes >= deaths and age_s >= wait_s)


def test_what_is_survived_leaves_nothing(bus: MemoryBus, clock: Clock) -> None:
    trials = worker(bus, clock)
    for _ in range(5):
        assert trials.begin(KEY) is Verdict.TRY
        assert bus.get(KEY) == b"1 inference@h:1"
        with trials.survived(KEY):
            pass
        assert bus.get(KEY) is None


def test_two_deaths_alone_are_enough(bus: MemoryBus, clock: Clock) -> None:
    for _ in range(2):
        trials = worker(bus, clock)  # the one before is dead
        if bus.get(KEY):
            assert trials.begin(KEY) is Verdict.WAIT, "the one before may be at it still"
            clock.now_s += REQUEST.wait_s
        assert trials.begin(KEY) is Verdict.TRY
    last = worker(bus, clock)
    assert last.begin(KEY) is Verdict.WAIT
    clock.now_s += REQUEST.wait_s
    assert last.begin(KEY) is Verdict.REFUSE
    other = worker(bus, clock)
    assert other.begin(KEY) is Verdict.WAIT
    clock.now_s += REQUEST.wait_s
    assert other.begin(KEY) is Verdict.REFUSE, "to others too"
    clock.now_s += LIFE_S
    assert other.begin(KEY) is Verdict.TRY, "it may have been mended"


def test_a_live_worker_is_waited_for_and_its_note_is_not_a_death(bus: MemoryBus, clock: Clock) -> None:
    one, other = worker(bus, clock), worker(bus, clock)
    for _ in range(4):
        assert one.begin(KEY) is Verdict.TRY
        assert other.begin(KEY) is Verdict.WAIT
        one.end(KEY)
    assert other.begin(KEY) is Verdict.TRY


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), BrokerUnavailable("gone")])
def test_an_error_that_the_worker_outlives_is_no_death(bus: MemoryBus, clock: Clock, error: BaseException) -> None:
    trials = worker(bus, clock)
    trials.begin(KEY)
    with pytest.raises(type(error)), trials.survived(KEY):
        raise error
    assert bus.get(KEY) is None


def test_a_lost_device_is_one_and_a_load_is_refused_after_three(bus: MemoryBus, clock: Clock) -> None:
    for _ in range(LOAD.deaths):
        with pytest.raises(DeviceError), worker(bus, clock, LOAD).noted(KEY, "loading run r1"):
            raise DeviceError("gone")
    with pytest.raises(EvaluationRefused, match="loading run r1 has killed its inference worker 3 times"):
        worker(bus, clock, LOAD).noted(KEY, "loading run r1").__enter__()
    assert bus.get(KEY) is not None


def test_without_the_control_plane_evaluation_goes_on_and_nobody_waits_for_it(bus: MemoryBus, clock: Clock) -> None:
    trials = worker(bus, clock)
    bus.down = True
    assert trials.begin(KEY) is Verdict.TRY
    trials.end(KEY)
    bus.down = False
    assert trials.begin(KEY) is Verdict.TRY
    assert bus.get(KEY) is None, "it is left alone for a while"
    clock.now_s += MUTE_S
    trials.begin(KEY)
    assert bus.get(KEY) is not None


@pytest.mark.parametrize("note", [b"", b"x", b"-3 w", b"99999999999999999999 w", b"\xff"])
def test_a_note_that_nobody_can_read_is_one(bus: MemoryBus, clock: Clock, note: bytes) -> None:
    bus.put(KEY, note)
    trials = worker(bus, clock, LOAD)
    assert trials.begin(KEY) is Verdict.TRY
    assert bus.get(KEY) == b"2 inference@h:1"
