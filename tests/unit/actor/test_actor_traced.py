"""A slice's traced games: what came before it, its evaluations and its end, each below what it follows."""

from __future__ import annotations

from collections import Counter

from actor_doubles import RUN, Table, after

from azq.tracing import CREATE_RUN, EVALUATE, FINISH, RECONCILE, SEND_JOB, SLICE, TRACES, TraceSpan, span_of, trace_of


def test_a_game_that_is_adopted_goes_on_in_its_trace():
    table, spans = Table(), list[TraceSpan]()
    TRACES.start(spans.append, 1.0)
    for moves in (12, 200):
        table.play(should_stop=after(moves))
    TRACES.stop()
    games = [trace_of("game", RUN, 0, event.record.uid).hex() for event in table.events]
    assert {span["traceId"] for span in spans if span["name"] == FINISH} == set(games)
    slices = Counter(span["traceId"] for span in spans if span["name"] == SLICE)
    way = [span for span in spans if span["traceId"] == next(game for game in games if slices[game] == 2)]
    ids = {span["spanId"]: span["name"] for span in way}
    assert len(ids) == len(way), "no two spans are called the same"
    before = {RECONCILE: RECONCILE, SEND_JOB: RECONCILE, SLICE: SEND_JOB, EVALUATE: SLICE, FINISH: SLICE}
    assert [ids.get(span["parentSpanId"], "") for span in way] == ["", *(before[span["name"]] for span in way[1:])]
    run = trace_of("run", RUN, 0)
    assert way[0]["links"] == [{"traceId": run.hex(), "spanId": span_of(run, CREATE_RUN).hex()}]
