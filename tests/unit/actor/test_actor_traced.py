"""A slice's traced games: what came before it, its evaluations and its end, each below what it follows."""

from __future__ import annotations

from collections import Counter

import pytest
from actor_doubles import RUN, Table, after

from azq.tracing import CREATE_RUN, EVALUATE, FINISH, RECONCILE, SEND_JOB, SLICE, TRACES, TraceSpan, span_of, trace_of


@pytest.fixture
def spans():
    recorded: list[TraceSpan] = []
    TRACES.start(recorded.append, 1.0)
    yield recorded
    TRACES.stop()


def test_every_game_has_its_way_through_the_slice(spans):
    table = Table()
    table.play(should_stop=after(200))
    assert [span["traceId"] for span in spans if span["name"] == FINISH] == [
        trace_of("game", RUN, 0, event.record.uid).hex() for event in table.events
    ]
    run, trace = trace_of("run", RUN, 0), trace_of("game", RUN, 0, table.events[0].record.uid).hex()
    ways = {span["name"]: span for span in spans if span["traceId"] == trace}
    decided, sent, played = (ways[name]["spanId"] for name in (RECONCILE, SEND_JOB, SLICE))
    parents = {name: span["parentSpanId"] for name, span in ways.items()}
    assert parents == {RECONCILE: "", SEND_JOB: decided, SLICE: sent, EVALUATE: played, FINISH: played}
    assert ways[RECONCILE]["links"] == [{"traceId": run.hex(), "spanId": span_of(run, CREATE_RUN).hex()}]
    times = [ways[name][f"{at}TimeUnixNano"] for name, at in ((SEND_JOB, "end"), (SLICE, "start"), (FINISH, "start"), (SLICE, "end"))]
    assert times == sorted(times)


def test_a_game_that_is_adopted_goes_on_in_its_trace(spans):
    table = Table()
    for _ in range(2):
        table.play(should_stop=after(12))  # after some moves
    slices = Counter(span["traceId"] for span in spans if span["name"] == SLICE)
    twice = [span for span in spans if slices[span["traceId"]] == 2]
    first, second = (span for span in twice if span["name"] == RECONCILE and span["traceId"] == twice[0]["traceId"])
    assert (first["parentSpanId"], second["parentSpanId"]) == ("", first["spanId"])
    assert len({(span["traceId"], span["spanId"]) for span in twice}) == len(twice)
