"""What the client does about refusals, lost answers and busy daemons, against answers made up here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from azq.client import Client
from azq.client.transport import ATTEMPTS, BACKOFF, error_of, parse_events
from azq.errors import (
    AccessDenied,
    AzqError,
    BrokerUnavailable,
    ConfigError,
    DaemonUnavailable,
    KeyReused,
    NotFound,
    StateConflict,
    TooManyRequests,
    UnknownTagError,
    WeightsError,
    WireError,
)

NUMBERS = ("priority", "attempt", "games", "slice_s", "created_ms", "published_ms", "claimed_ms", "lease_until_ms", "ended_ms")
WORDS = {"job_id": "r:1", "run": "r", "kind": "selfplay", "tag": "cpu", "state": "queued", "owner": "", "error": ""}
JOB = dict.fromkeys(NUMBERS, 1) | WORDS

Step = httpx2.Response | Exception


class Script:
    """Answers in order, the last one for ever; remembers what was asked and how long was waited."""

    def __init__(self, *steps: Step) -> None:
        self.steps: Sequence[Step] = steps
        self.asked: list[httpx2.Request] = []
        self.waited: list[float] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        step = self.steps[min(len(self.asked), len(self.steps) - 1)]
        self.asked.append(request)
        if isinstance(step, Exception):
            raise step
        return step

    def client(self, token: str = "") -> Client:
        http = httpx2.Client(transport=httpx2.MockTransport(self))
        return Client("http://daemon:8080", token, http=http, sleep=self.waited.append)


def problem(status: int, kind: str = "about:blank", detail: str = "why", **headers: str) -> httpx2.Response:
    return httpx2.Response(status, json={"type": kind, "detail": detail}, headers=headers)


def job() -> httpx2.Response:
    return httpx2.Response(201, json=JOB)


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (409, "UnknownTagError", UnknownTagError),
        (422, "KeyReused", KeyReused),
        (503, "BrokerUnavailable", BrokerUnavailable),
        (404, "NotFound", NotFound),
        (409, "NoClassOfOurs", StateConflict),
        (409, "Exception", StateConflict),
        (403, "", AccessDenied),
        (429, "", TooManyRequests),
        (503, "", DaemonUnavailable),
        (500, "", AzqError),
        (302, "", AzqError),
    ],
)
def test_a_problem_is_the_error_that_it_names(status: int, name: str, kind: type[AzqError]) -> None:
    error = error_of(status, {"type": f"urn:azq:error:{name}", "detail": "what, where, what to do"}, "GET /x")
    assert type(error) is kind
    assert str(error) == "what, where, what to do"


@pytest.mark.parametrize("body", [None, [], "text", {"detail": None}])
def test_an_answer_that_is_no_problem_document_is_named_by_its_request(body: Any) -> None:
    assert "GET /x was answered with status 404" in str(error_of(404, body, "GET /x"))


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    script = Script(httpx2.ReadError("cut"), problem(503, "urn:azq:error:BrokerUnavailable"), job())
    assert script.client("secret").enqueue("r", "selfplay").job_id == "r:1"
    keys = {request.headers["idempotency-key"] for request in script.asked}
    assert (len(script.asked), len(keys)) == (3, 1)
    assert {request.headers["authorization"] for request in script.asked} == {"Bearer secret"}
    script.client().enqueue("r", "selfplay")
    assert script.asked[-1].headers["idempotency-key"] not in keys


@pytest.mark.parametrize("lost", [httpx2.ReadError("cut"), httpx2.ReadTimeout("slow"), problem(503)])
def test_what_could_have_had_its_effect_is_not_repeated_without_a_key(lost: Step) -> None:
    for send in (lambda client: client.revoke_job("r:1"), lambda client: client.resume_run("r")):
        script = Script(lost, job())
        with pytest.raises(DaemonUnavailable):
            send(script.client())
        assert len(script.asked) == 1


@pytest.mark.parametrize("refused", [httpx2.ConnectError("nobody"), problem(429, "urn:azq:error:TooManyRequests")])
def test_what_surely_had_no_effect_is_always_repeated(refused: Step) -> None:
    script = Script(refused, job())
    assert script.client().revoke_job("r:1").job_id == "r:1"
    assert len(script.asked) == 2


def test_patience_ends_and_waits_as_long_as_it_is_told_within_reason() -> None:
    script = Script(problem(429, "urn:azq:error:TooManyRequests", **{"Retry-After": "3"}))
    with pytest.raises(TooManyRequests):
        script.client().job("r:1")
    assert (len(script.asked), script.waited) == (ATTEMPTS, [3.0] * (ATTEMPTS - 1))
    script = Script(problem(503, **{"Retry-After": "86400"}), job())
    script.client().job("r:1")
    assert script.waited == [BACKOFF.longest_s]


def test_what_is_refused_for_good_is_not_repeated() -> None:
    script = Script(problem(404, "urn:azq:error:NotFound", "no job r:1"))
    with pytest.raises(NotFound, match="no job r:1"):
        script.client().job("r:1")
    assert (len(script.asked), script.waited) == (1, [])


def test_names_cannot_leave_their_place_in_the_path() -> None:
    script = Script(problem(404))
    with pytest.raises(NotFound):
        script.client().run("../jobs?x=1#y")
    assert script.asked[0].url.raw_path == b"/v1/runs/..%2Fjobs%3Fx%3D1%23y"


def test_pages_are_followed_on_the_same_host_only() -> None:
    link = {"Link": '<https://elsewhere.example/steal?cursor=two&limit=1>; rel="next"'}
    script = Script(httpx2.Response(200, json=[JOB], headers=link), httpx2.Response(200, json=[JOB, JOB]))
    assert len(list(script.client("secret").jobs(run="r"))) == 3
    assert [str(request.url) for request in script.asked] == [
        "http://daemon:8080/v1/jobs?run=r&active=true",
        "http://daemon:8080/v1/jobs?cursor=two&limit=1",
    ]


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b'{"job_id": 7}'])
def test_an_answer_of_another_shape_is_said(content: bytes) -> None:
    with pytest.raises(WireError, match="another shape"):
        Script(httpx2.Response(200, content=content)).client().job("r:1")


def test_damaged_weights_are_not_handed_on() -> None:
    with pytest.raises(WeightsError):
        Script(httpx2.Response(200, content=b"torn", headers={"ETag": '"00"'})).client().read_weights("r")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://"):
        Client("localhost:8080")


# --- events ---------------------------------------------------------------------------------------------------------


def told(number: int) -> str:
    data = {"run": "r", "kind": "run.paused", "at_ms": number, "about": {}}
    return f"id: {number}-0-e-r\nevent: run.paused\ndata: {json.dumps(data)}\n\n"


def test_events_are_read_on_over_broken_connections_from_the_last_one() -> None:
    def stream(text: str) -> httpx2.Response:
        return httpx2.Response(200, text=f"retry: 2000\n\n: alive\n\n{text}")

    script = Script(stream("id: 1-0-e-r\n\n"), httpx2.ConnectError("restart"), stream(told(2) + told(3)), problem(503), stream(told(4)))
    events = script.client().events("r")
    assert [next(events).at_ms for _ in range(3)] == [2, 3, 4]
    assert [request.headers.get("last-event-id") for request in script.asked] == [None, *["1-0-e-r"] * 2, *["3-0-e-r"] * 2]


@pytest.mark.parametrize(
    ("answer", "kind"), [(problem(403), AccessDenied), (problem(404), NotFound), (httpx2.ConnectError("nobody"), DaemonUnavailable)]
)
def test_events_of_nothing_are_an_error_at_once(answer: Step, kind: type[AzqError]) -> None:
    with pytest.raises(kind):
        next(Script(answer).client().events("r"))


@pytest.mark.parametrize("data", ["", "{", "[]", '{"run": 7}'])
def test_an_event_that_does_not_decode_is_said(data: str) -> None:
    with pytest.raises(WireError):
        list(parse_events([f"data: {data}", ""]))
