"""One game in a thousand as a trace, as OpenTelemetry has it: what each process that touches the game does with it, and when.

Ids follow from what they are of: a trace's from the game's run and number, a span's from its trace and name. So each process adds its
spans below, or links to, those of others, and no message has a field for that. Where nothing is traced it costs a look at `TRACES.on`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

from azq.clock import now_ns

# A game's way; the simulation's lines have the same names.
CREATE_RUN = "POST /v1/runs"  # a trace of the run; each game links to it
RECONCILE = "reconcile"
SEND_JOB = "send job"
SLICE = "slice"  # once for each lease that has the game
EVALUATE = "evaluate"  # links to
BATCH = "batch"  # a trace of the request
FINISH = "finish"
SAMPLE_EVENT = "sample event"
STEP = "step"  # the first after it
WEIGHT_VERSION = "weight version"  # links to a trace of the weights, with a span of that name, too, and
SWITCH = "switch"  # one below that in each process that takes them

INTERNAL, PRODUCER, CONSUMER = 1, 4, 5  # OpenTelemetry's kinds of spans, and of messages the operation
SENT = dict.fromkeys((SEND_JOB, EVALUATE, FINISH, WEIGHT_VERSION), (PRODUCER, "send"))
RECEIVED = dict.fromkeys((SLICE, BATCH, SAMPLE_EVENT, SWITCH), (CONSUMER, "process"))
SPANS = dict.fromkeys((CREATE_RUN, RECONCILE, STEP), (INTERNAL, "")) | SENT | RECEIVED
REQUESTS = 10.0  # times the share of games: of evaluation requests

TraceSpan = dict[str, Any]  # as in OTLP's JSON, its attributes as a mapping


def trace_of(*what: object) -> bytes:
    """The 16 bytes that name the trace of a run, a game, a request or weights."""
    return blake2b(" ".join(map(str, what)).encode(), digest_size=16).digest()


def span_of(trace: bytes, *what: object) -> bytes:
    """The 8 bytes that name a span, by its name and what tells it from others of that name."""
    return blake2b(" ".join(map(str, what)).encode(), digest_size=8, key=trace).digest()


class Traces:
    """What this process traces, and where its spans go."""

    def __init__(self) -> None:
        self.on = False

    def start(self, record: Callable[[TraceSpan], object], share: float, close: Callable[[], object] = lambda: None) -> None:
        """Traces a share of games from now on; `close` waits for spans that are on their way."""
        self.on, self._record, self._below, self._close = True, record, share * 2.0**64, close

    def stop(self) -> None:
        """Traces nothing any more."""
        if self.on:
            self.on = False
            self._close()

    def sampled(self, *what: object, numbers: Iterable[int], times: float = 1.0) -> list[bytes]:
        """Traces of those that are of the share, or of so many times that: alike in all processes, by ids as OpenTelemetry samples."""
        traces = (trace_of(*what, number) for number in (numbers if self.on else ()))
        return [trace for trace in traces if int.from_bytes(trace[8:]) < self._below * times]

    def add(
        self, what: tuple[object, ...], traces: Iterable[bytes], start_ns: int, end_ns: int = 0,
        *, below: tuple[object, ...] = (), links: Mapping[bytes, str] = {}, **about: str | int,
    ) -> None:  # fmt: skip
        """Records a span in each trace, by default one that ends now; `what` it is, name first, is `below`; links are names by trace."""
        if not self.on:
            return
        name, facts = str(what[0]), dict[str, str | int]({f"azq.{key}": value for key, value in about.items()})
        kind, operation = SPANS[name]
        if operation:
            facts |= {"messaging.system": "celery" if name in (SEND_JOB, SLICE) else "redis", "messaging.operation.type": operation}
        times = {"startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(end_ns or now_ns())}
        span: TraceSpan = {"name": name, "kind": kind, **times, "attributes": facts}
        span["links"] = [{"traceId": other.hex(), "spanId": span_of(other, name_there).hex()} for other, name_there in links.items()]
        for trace in traces:
            parent = span_of(trace, *below).hex() if below else ""
            self._record({"traceId": trace.hex(), "spanId": span_of(trace, *what).hex(), "parentSpanId": parent, **span})


TRACES = Traces()
