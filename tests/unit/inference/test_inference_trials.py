"""What may kill is noted before it is begun; notes that stay are deaths."""

from __future__ import annotations

import pytest
from memory_broker import MemoryBus

from azq.errors import BrokerUnavailable, DeviceError, EvaluationRefused
from azq.inference.serve.trials import LIFE_S, LOAD, REQUEST, Patience, Trials, Verdict, judge

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


@pytest.mark.parametrize(
    ("notes", "age_s", "patience", "verdict"),
    [
        (0, 0.0, REQUEST, Verdict.TRY),
        (1, 4.9, REQUEST, Verdict.WAIT),
        (1, 5.0, REQUEST, Verdict.TRY),
        (2, 4.9, REQUEST, Verdict.WAIT),
        (2, 5.0, REQUEST, Verdict.REFUSE),
        (2, 0.0, LOAD, Verdict.TRY),
        (3, 0.0, LOAD, Verdict.REFUSE),
        (9, 0.0, LOAD, Verdict.REFUSE),
    ],
)
def test_a_request_is_refused_after_two_old_notes_and_a_load_after_three(
    notes: int, age_s: float, patience: Patience, verdict: Verdict
) -> None:
    assert judge(notes, age_s, patience) is verdict


def test_a_note_lives_ten_minutes(bus: MemoryBus, clock: Clock) -> None:
    worker(bus, clock).begin(KEY)
    clock.now_s += 599.9
    assert bus.get(KEY) is not None
    clock.now_s += 0.1
    assert bus.get(KEY) is None


def test_a_note_is_as_old_as_its_reader_has_seen_it_unchanged(bus: MemoryBus, clock: Clock) -> None:
    trials = worker(bus, clock)
    bus.put(KEY, b"1 other")
    assert trials.begin(KEY) is Verdict.WAIT
    clock.now_s += 4.9
    assert trials.begin(KEY) is Verdict.WAIT
    bus.put(KEY, b"2 other")
    clock.now_s += 4.9
    assert trials.begin(KEY) is Verdict.WAIT, "another note is a new one"
    clock.now_s += 5.0
    assert trials.begin(KEY) is Verdict.REFUSE
    bus.delete(KEY)
    assert trials.begin(KEY) is Verdict.TRY
    bus.put(KEY, b"2 other")
    assert trials.begin(KEY) is Verdict.WAIT, "and so is one after none"
    clock.now_s += 9.0
    bus.put(KEY, b"2 other")
    trials.end(KEY)
    bus.put(KEY, b"2 other")
    assert trials.begin(KEY) is Verdict.WAIT, "or after an end"


def test_what_was_tried_goes_on_to_the_next_and_the_refusal_says_when_it_is_tried_again(bus: MemoryBus, clock: Clock) -> None:
    bus.put(KEY, b"2 other")
    with worker(bus, clock, LOAD).noted(KEY, "loading run r1"):
        assert bus.get(KEY) == b"3 inference@h:1"
    bus.put(KEY, b"3 other")
    with (
        pytest.raises(EvaluationRefused, match="killed its inference worker 3 times here; mend it; it is tried again 10 minutes after"),
        worker(bus, clock, LOAD).noted(KEY, "loading run r1"),
    ):
        raise AssertionError("it was begun")


def test_what_is_noted_while_another_is_at_it_is_done_and_ends(bus: MemoryBus, clock: Clock) -> None:
    bus.put(KEY, b"1 other")
    with worker(bus, clock).noted(KEY, "loading run r1"):
        pass
    assert bus.get(KEY) is None


@pytest.mark.parametrize("first", ["begin", "end"])
def test_a_control_plane_that_failed_is_left_alone_for_ten_seconds(bus: MemoryBus, clock: Clock, first: str) -> None:
    trials = worker(bus, clock)
    bus.down = True
    getattr(trials, first)(KEY)
    bus.down = False
    bus.put(KEY, b"9 other")
    clock.now_s += 9.9
    assert trials.begin(KEY) is Verdict.TRY
    trials.end(KEY)
    assert bus.get(KEY) == b"9 other"
    clock.now_s += 0.1
    assert trials.begin(KEY) is Verdict.WAIT
    trials.end(KEY)
    assert bus.get(KEY) is None


def test_a_control_plane_that_fails_again_is_left_alone_no_longer(bus: MemoryBus, clock: Clock) -> None:
    trials = worker(bus, clock)
    bus.down = True
    for _ in range(4):
        trials.begin(KEY)
        clock.now_s += 10.0
    bus.down = False
    bus.put(KEY, b"9 other")
    assert trials.begin(KEY) is Verdict.WAIT


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


def test_notes_are_counted_to_nine_digits(bus: MemoryBus, clock: Clock) -> None:
    for note, then in ((b"999999999 w", b"1000000000 inference@h:1"), (b"1000000000 w", b"2 inference@h:1"), (b"7", b"8 inference@h:1")):
        bus.put(KEY, note)
        assert worker(bus, clock, Patience(deaths=10**10, wait_s=0.0)).begin(KEY) is Verdict.TRY
        assert bus.get(KEY) == then


@pytest.mark.parametrize("note", [b"", b"x", b"-3 w", b"99999999999999999999 w", b"\xff"])
def test_a_note_that_nobody_can_read_is_one(bus: MemoryBus, clock: Clock, note: bytes) -> None:
    bus.put(KEY, note)
    trials = worker(bus, clock, LOAD)
    assert trials.begin(KEY) is Verdict.TRY
    assert bus.get(KEY) == b"2 inference@h:1"
