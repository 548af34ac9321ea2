"""Events of runs in one order, and lines of the audit."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_broker import MemoryBus, MemoryLedger

from azq.errors import InvalidRequest
from azq.ledger.types import KEPT_EVENTS, RunState
from azq.status.events import READ_AT_ONCE, EventId, EventReader, condition_events, line_of, parse_event_id, write_command
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeResult, Job, MatchResult, MatchSpec, RunEvent, RunRecord, WeightEvent

RUNS = ("a", "b")
START = EventId(0, 0, "a", "")


def publish(bus: MemoryBus, run: str, letter: str, number: int) -> None:
    if letter == "e":
        bus.publish(keys.events(run), encode(RunEvent("run.paused", number, {"reason": str(number)})))
    elif letter == "w":
        bus.publish(keys.weights(run), encode(WeightEvent(run, number + 1, "00", "file:00", number, number)))
    else:
        bus.publish(keys.results(run), encode(GradeResult(1, 64, 200, 18, number)))


def reader_of(bus: MemoryBus, runs: Sequence[str], after: EventId) -> EventReader:
    return EventReader(bus, runs, after, pause=lambda _: None)


def everything(reader: EventReader) -> list[EventId]:
    found: list[EventId] = []
    while events := reader.read():
        found += [event.id for event in events]
    return found


@given(
    st.lists(st.tuples(st.sampled_from(RUNS), st.sampled_from("erw"), st.integers(0, 2)), max_size=40),
    st.integers(0, 40),
)
def test_a_reader_that_comes_back_at_any_event_reads_on_from_there(history: list[tuple[str, str, int]], stop: int) -> None:
    clock = [1.0]
    bus = MemoryBus(clock=lambda: clock[0])
    for number, (run, letter, wait_ms) in enumerate(history):
        clock[0] += wait_ms / 1000  # often several in one millisecond, in several streams
        publish(bus, run, letter, number)
    whole = everything(reader_of(bus, RUNS, START))
    assert len(whole) == len(history)
    assert whole == sorted(set(whole))
    if whole:
        last = whole[min(stop, len(whole) - 1)]
        assert everything(reader_of(bus, RUNS, parse_event_id(str(last)))) == [place for place in whole if place > last]
        alone = everything(reader_of(bus, ["a"], parse_event_id(str(last))))
        assert alone == [place for place in whole if place > last and place.run == "a"]


def test_a_long_stream_is_not_overtaken_by_a_short_one() -> None:
    clock = [1.0]
    bus = MemoryBus(clock=lambda: clock[0])
    for number in range(2 * READ_AT_ONCE + 7):
        clock[0] += 0.001
        publish(bus, "a", "e", number)
    publish(bus, "b", "e", 0)
    reader = reader_of(bus, RUNS, START)
    first = reader.read()
    assert {event.id.run for event in first} == {"a"}
    rest = everything(reader)
    assert [*[event.id for event in first], *rest] == sorted([*[event.id for event in first], *rest])
    assert rest[-1].run == "b"


def test_what_comes_late_within_one_millisecond_is_told_in_its_place() -> None:
    bus = MemoryBus(clock=lambda: 1.0)
    publish(bus, "b", "e", 0)
    reader = EventReader(bus, RUNS, START, pause=lambda _: publish(bus, "a", "e", 1))  # between the two looks
    assert [event.id.run for event in reader.read()] == ["a", "b"]


def test_a_new_reader_hears_only_what_comes_and_new_runs_from_their_beginning() -> None:
    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    ledger.create_run(RunRecord("a", b"{}", {}, "x", 1))
    reader = EventReader(bus, ["a"], None)
    assert reader.read() == []
    ledger.create_run(RunRecord("b", b"{}", {}, "x", 1))
    reader.join(["a", "b"])
    ledger.set_run_state("a", RunState.PAUSED, "lunch")
    job = ledger.enqueue(Job("", "b", Kind.SELFPLAY, "cpu"))
    ledger.claim(job.job.job_id, 1, "w1", 5.0)
    told = [(event.id.run, event.kind, event.about) for event in reader.read()]
    about = {"job": "b:1", "kind": "selfplay", "tag": "cpu", "attempt": 1}
    assert sorted(told, key=str) == sorted(
        [
            ("b", "run.running", {}),
            ("a", "run.paused", {"reason": "lunch"}),
            ("b", "job.queued", about),
            ("b", "job.leased", {**about, "owner": "w1"}),
        ],
        key=str,
    )


def test_weights_matches_and_grades_are_told_with_their_figures() -> None:
    bus = MemoryBus()
    publish(bus, "a", "w", 4)
    publish(bus, "a", "r", 5)
    spec = MatchSpec("latest", "uct:100", 20, 64, 4, 0)
    bus.publish(keys.results("a"), encode(MatchResult(spec, "weights:5", "uct:100", 15, 2, 3, 6)))
    bus.publish(keys.results("a"), b"garbage")
    told = {event.kind: event for event in EventReader(bus, ["a"], START).read()}
    assert told["weights.published"].about == {"version": 5, "step": 4, "sha256": "00"}
    assert told["grade.finished"].about["errors"] == 18
    assert (told["match.finished"].about["wins"], told["match.finished"].at_ms) == (15, 6)
    assert len(told) == 3


def test_a_reader_hears_which_runs_lost_events_while_it_was_away() -> None:
    bus = MemoryBus()
    for number in range(KEPT_EVENTS + 1):
        bus.publish(keys.events("a"), encode(RunEvent("run.paused", number, {"reason": "x"})), max_length=KEPT_EVENTS)
    publish(bus, "b", "e", 0)
    assert EventReader(bus, RUNS, EventId(1, 0, "e", "a")).lost == ["a"]
    newest = bus.newest(keys.events("a"))[0].id
    assert EventReader(bus, RUNS, parse_event_id(f"{newest}-e-a")).lost == []
    assert EventReader(bus, RUNS, None).lost == []


@pytest.mark.parametrize("text", ["x", "1-1", "1-1-x-a", "1-1-e-", "1-1-e-A", "-1-1-e-a", "1" * 40 + "-1-e-a", "1-1-e-a\n", "٣-1-e-a"])
def test_an_id_of_no_event_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        parse_event_id(text)


def test_conditions_begin_and_end() -> None:
    told = condition_events(frozenset({"old", "lasting"}), frozenset({"lasting", "new"}))
    assert told == [("condition.began", {"condition": "new"}), ("condition.ended", {"condition": "old"})]


def test_a_user_without_a_name_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    bus = MemoryBus()
    write_command(bus, "azq up", "r")
    (line,) = map(line_of, bus.after(keys.AUDIT, "0"))
    assert line is not None
    assert line.who == f"{os.getuid()}@{socket.gethostname()}"
