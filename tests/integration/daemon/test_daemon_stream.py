"""Event streams over a real socket: live, resumed after a lost connection and a restart, bounded, and never in anybody's way."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from memory_broker import MemoryBus, MemoryLedger
from rest_site import RestSite
from waiting import until

from azq.config import DaemonConfig
from azq.ledger.types import RunState
from azq.process.webserver import open_listener
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord
from daemon.api.limits import Streams
from daemon.api.services import Services
from daemon.decide.actions import Condition
from daemon.serve.health import Health


class Place:
    """A control plane, real or in memory, that daemons come and go before."""

    def __init__(self, ledger: Any, bus: Any) -> None:
        self.ledger = ledger
        self.bus = bus
        self.health = Health()

    @contextmanager
    def serving(self, streams: Streams | None = None) -> Iterator[tuple[str, Services]]:
        site = RestSite(plane=(self.ledger, self.bus), health=self.health, port=0, doubles={"streams": streams or Streams()})
        with site.serving() as url:
            yield url, site.services


@pytest.fixture
def place() -> Place:
    bus = MemoryBus()
    return Place(MemoryLedger(bus), bus)


def record(run: str) -> RunRecord:
    return RunRecord(run, b"{}", {}, "folder", 1)


@contextmanager
def listening(url: str, **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    with httpx2.stream("GET", url, headers=headers, timeout=httpx2.Timeout(5, read=15)) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines).startswith("retry:")
        assert next(lines).startswith("id: ")  # from here on nothing is missed
        yield blocks(lines)


def blocks(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    block: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            block[name] = value
            continue
        if "data" in block:
            yield block
        block = {}


def test_events_come_live_and_go_on_where_a_lost_connection_and_a_restart_left_off(place: Place) -> None:
    place.ledger.create_run(record("first"))
    place.ledger.create_run(record("other"))
    with place.serving() as (url, _):
        with listening(f"{url}/v1/runs/first/events") as told:
            place.ledger.set_run_state("other", RunState.PAUSED)
            place.ledger.set_run_state("first", RunState.PAUSED, "lunch")
            event = next(told)
            assert event["event"] == "run.paused"
            data = json.loads(event["data"])
            assert (data["run"], data["kind"], data["about"]) == ("first", "run.paused", {"reason": "lunch"})
        place.ledger.set_run_state("first", RunState.RUNNING)
    job = place.ledger.enqueue(Job("", "first", Kind.SELFPLAY, "cpu"))  # while no daemon runs at all
    with place.serving() as (url, _), listening(f"{url}/v1/events", **{"Last-Event-ID": event["id"]}) as told:
        rest = list(itertools.islice((one for one in told if '"first"' in one["data"]), 2))
        assert [one["event"] for one in rest] == ["run.running", "job.queued"]
        assert json.loads(rest[1]["data"])["about"]["job"] == job.job.job_id
        place.ledger.create_run(record("third"))
        assert json.loads(next(told)["data"])["run"] == "third"


def test_conditions_are_told_when_they_begin_and_end(place: Place) -> None:
    place.ledger.create_run(record("first"))
    report = Condition("unroutable", "first", "selfplay.jarvis", "words")
    place.health.tick_ok([report])
    with place.serving() as (url, _), listening(f"{url}/v1/runs/first/events") as told:
        began = next(told)
        assert (began["event"], "id" in began) == ("condition.began", False)
        place.health.tick_ok([])
        ended = next(told)
        assert ended["event"] == "condition.ended"
        assert ended["data"].split('"about"')[1] == began["data"].split('"about"')[1]


def test_streams_are_bounded_end_with_their_clients_and_with_the_daemon(place: Place) -> None:
    place.ledger.create_run(record("first"))
    with place.serving(Streams(1)) as (url, services):
        with listening(f"{url}/v1/events"):
            refused = httpx2.get(f"{url}/v1/events")
            assert (refused.status_code, refused.json()["type"]) == (429, "urn:azq:error:TooManyRequests")
            assert int(refused.headers["retry-after"]) > 0
            assert httpx2.get(f"{url}/v1/runs").status_code == 200
        until(lambda: services.streams.open == 0)
        for path in ("/v1/runs/nope/events", "/v1/runs/first/events"):
            bad = httpx2.get(f"{url}{path}", headers={"Last-Event-ID": "x"} if "first" in path else {})
            assert bad.status_code in (404, 422)
        assert services.streams.open == 0
        with listening(f"{url}/v1/events") as told:
            services.streams.close()
            assert next(told, None) is None


def test_a_broker_that_goes_away_pauses_the_stream_and_nothing_is_missed(place: Place) -> None:
    place.ledger.create_run(record("first"))
    with place.serving() as (url, _), listening(f"{url}/v1/runs/first/events") as told:
        place.bus.down = True
        assert httpx2.get(f"{url}/healthz").status_code == 200
        threading.Event().wait(0.7)
        place.bus.down = False
        place.ledger.set_run_state("first", RunState.PAUSED)
        assert next(told)["event"] == "run.paused"


def test_small_answers_are_sent_at_once_over_a_connection_that_stays_open() -> None:
    """Without TCP_NODELAY each answer on a kept connection waits 40 ms for the client's delayed acknowledgement."""
    bus = MemoryBus()
    with Place(MemoryLedger(bus), bus).serving() as (url, _), httpx2.Client() as client:
        client.get(f"{url}/healthz")
        waits = []
        for _ in range(30):
            began = time.perf_counter()
            client.get(f"{url}/healthz")
            waits.append(time.perf_counter() - began)
    assert min(waits) < 0.035
    with open_listener(DaemonConfig(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
