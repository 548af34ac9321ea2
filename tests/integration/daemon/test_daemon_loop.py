"""The daemon's tick against a real broker and a real Celery queue; no worker process, the test claims jobs itself."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
import redis
from factories import heartbeat
from rest_site import RestSite
from waiting import until

from azq import queue as jobs
from azq.bus.redis import RedisBus
from azq.config import BudgetConfig, DaemonConfig
from azq.errors import StateConflict
from azq.ledger import Ledger
from azq.ledger.holder import process_space
from azq.ledger.types import JobState, Lease, RunState
from azq.status.observe import Beats, Observer, read_promotions
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.connect import connect
from azq.wire.messages import EvalRound, Fleet, GradeSpec, MatchResult, MatchSpec, WeightEvent
from daemon.serve.act import Hands
from daemon.serve.health import Health
from daemon.serve.loop import DaemonLock, Loop, broker_ms

CONFIG = DaemonConfig()


class Plane:
    """One control plane with a daemon that ticks when the test says so."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self.client = client
        self.later_ms = 0  # how far the broker's clock is ahead
        self.steady_s = 0.0  # the daemon's own
        self.bus, self.ledger, self.health = RedisBus(client), Ledger(client), Health()
        self.lock = DaemonLock(client)
        self.app = jobs.make_app(url)
        hands = Hands(self.ledger, self.bus, partial(jobs.publish, self.app))
        self.loop = Loop(
            config=CONFIG,
            observer=Observer(self.ledger, self.bus, Beats(self.bus), lambda: self.steady_s),
            hands=hands,
            bus=self.bus,
            hold=self.lock.hold,
            clock_ms=lambda: broker_ms(client) + self.later_ms,
            has_positions=lambda run: run.game == "connect_four",
            health=self.health,
            life_s=5.0,
        )
        self.rest = RestSite(plane=(self.ledger, self.bus), health=self.health).http

    def tick_for(self, seconds: float) -> None:
        """Ticks every two seconds, on all clocks."""
        for _ in range(round(seconds / 2)):
            self.steady_s += 2.0
            self.later_ms += 2_000
            assert self.loop.tick()

    def worker(self, *queues: str, slots: int = 1, name: str = "w1") -> None:
        beat = heartbeat("selfplay", name, queues=queues, slots=slots)
        self.bus.put(keys.beat(name), encode(beat), life_s=60)

    def create(self, **sections: Any) -> None:
        values = {"run": {"game": "tic_tac_toe"}, "arena": {"every_s": 0}, **sections}
        assert self.rest.post("/v1/runs", json={"name": "r", "sections": values}).status_code == 201

    def messages(self, queue: str) -> list[tuple[str, int]]:
        """What waits in a Celery queue, as (job_id, attempt)."""
        found = []
        for key in self.client.scan_iter(f"{keys.CELERY_PREFIX}{queue}*"):
            for text in self.client.lrange(key, 0, -1):
                args, *_ = msgspec.msgpack.decode(base64.b64decode(json.loads(text)["body"]))
                found.append(tuple(args))
        return sorted(found)

    def claim(self, message: tuple[str, int], *, lease_s: float = 30.0) -> Lease:
        lease = self.ledger.claim(*message, "w1", lease_s)
        assert lease is not None
        return lease


@pytest.fixture
def plane(broker: Any) -> Iterator[Plane]:
    client = connect(broker.control_url)
    place = Plane(client, broker.control_url)
    yield place
    place.app.close()
    client.close()


def test_a_run_made_over_rest_becomes_jobs_in_the_celery_queue(plane: Plane) -> None:
    plane.worker("selfplay.cpu", slots=2)
    plane.create(selfplay={"games_in_flight": 8})
    assert plane.loop.tick()
    assert plane.messages("selfplay.cpu") == [("r:1", 1), ("r:2", 1), ("r:3", 1)]
    assert all(view.published_ms > 0 and view.job.games == 8 for view in plane.ledger.jobs("r"))
    for _ in range(3):
        assert plane.loop.tick()
    assert len(plane.messages("selfplay.cpu")) == 3
    assert plane.rest.get("/readyz").status_code == 200
    assert [worker["role"] for worker in plane.rest.get("/v1/workers").json()] == ["daemon", "selfplay"]


def test_the_goal_ends_the_run_and_a_farther_one_lets_it_go_on(plane: Plane) -> None:
    plane.worker("selfplay.cpu")
    plane.create()
    plane.ledger.update_run_until("r", {"minutes": 1e-9})
    assert until(lambda: plane.loop.tick() and plane.ledger.run("r").state is RunState.FINISHED)
    assert "minutes" in plane.rest.get("/v1/runs/r").json()["reason"]
    plane.rest.post("/v1/runs/r/resume", json={"until": {"minutes": 60}})
    plane.loop.tick()
    assert plane.ledger.run("r").state is RunState.RUNNING
    assert len(plane.ledger.jobs("r")) == 2


def test_a_job_asked_for_over_rest_is_published_at_its_priority_and_can_be_revoked(plane: Plane) -> None:
    plane.worker("selfplay.cpu", "eval.cpu")
    plane.create()
    body = {"run": "r", "kind": "eval", "priority": 0, "match": {"first": "random", "second": "uct:10", "games": 2}}
    job_id = plane.rest.post("/v1/jobs", json=body).json()["job_id"]
    plane.loop.tick()
    assert plane.messages("eval.cpu") == [(job_id, 1)]
    assert plane.rest.post(f"/v1/jobs/{job_id}/revoke").json()["state"] == "cancelled"
    assert plane.ledger.claim(job_id, 1, "w1", 30.0) is None


def test_a_waiting_job_is_not_published_again_while_all_workers_are_busy(plane: Plane) -> None:
    plane.worker("selfplay.cpu")
    plane.create()
    plane.loop.tick()
    plane.claim(("r:1", 1), lease_s=600.0)
    plane.tick_for(90.0)
    assert plane.ledger.job("r:2").attempt == 1


def test_new_weights_are_evaluated_once_and_a_restarted_daemon_does_not_ask_again(plane: Plane, broker: Any) -> None:
    plane.worker("selfplay.cpu", "eval.cpu")
    plane.create(run={"game": "connect_four"}, arena={"every_s": 0.05, "opponents": ["previous", "uct:10"], "games": 4})
    plane.bus.publish(keys.weights("r"), encode(WeightEvent("r", 3, "0" * 64, "file:x", 10, 0)))
    until(lambda: plane.loop.tick() and plane.messages("eval.cpu"))
    payloads = [plane.ledger.job(job_id).job.payload for job_id, _ in plane.messages("eval.cpu")]
    assert [decode(payload, GradeSpec).weight_version for payload in payloads] == [3]
    for message in plane.messages("eval.cpu"):
        plane.ledger.complete(plane.claim(message), b"")
    plane.lock.let_go()
    successor = Plane(plane.client, broker.control_url)
    for _ in range(5):
        assert successor.loop.tick()
    assert [view for view in plane.ledger.jobs("r") if view.job.kind == "eval"] == []
    plane.bus.publish(keys.weights("r"), encode(WeightEvent("r", 7, "0" * 64, "file:x", 10, 0)))
    until(lambda: successor.loop.tick() and [view for view in plane.ledger.jobs("r") if view.job.kind == "eval"])
    grade, match, _ = (view.job.payload for view in plane.ledger.jobs("r") if view.job.kind == "eval")
    assert (decode(match, MatchSpec).first, decode(match, MatchSpec).second) == ("weights:7", "weights:3")
    assert decode(grade, GradeSpec).weight_version == 7


def test_who_wins_its_trial_is_promoted(plane: Plane) -> None:
    plane.worker("selfplay.cpu", "eval.cpu", slots=4)
    plane.create(arena={"every_s": 0, "promotion": "games", "promotion_games": 40, "games": 10})
    for version, won in ((1, 0), (2, 2), (3, 8)):  # of ten games; 55 % are needed
        plane.bus.publish(keys.weights("r"), encode(WeightEvent("r", version, "0" * 64, "file:x", 10, 0)))
        for _ in range(10):
            assert plane.loop.tick()
            for lease in filter(None, (plane.ledger.claim(*message, "w1", 30.0) for message in plane.messages("eval.cpu"))):
                spec = decode(lease.job.payload, MatchSpec)
                plane.ledger.complete(lease, encode(MatchResult(spec, spec.first, spec.second, won, 0, spec.games - won, 0)))
    verdicts = [(event.version, event.deed) for event in read_promotions(plane.bus, "r").events if event.deed != "candidate"]
    assert verdicts == [(1, "promoted"), (2, "rejected"), (3, "promoted")]


def test_a_match_for_tabs_goes_to_servers_once_no_tab_is_there(plane: Plane) -> None:
    plane.worker("selfplay.cpu", "eval.cpu")
    plane.worker("eval.browser", name="g")
    arena = {"every_s": 0.05, "opponents": ["previous"], "games": 4, "grade_positions": 0}
    plane.create(arena=arena, volunteers={"kinds": ["selfplay", "eval"]})
    plane.bus.publish(keys.weights("r"), encode(WeightEvent("r", 3, "0" * 64, "file:x", 10, 0)))
    plane.bus.put(keys.eval_round("r"), encode(EvalRound(2, 1)))
    until(lambda: plane.loop.tick() and plane.messages("eval.browser"))
    [(job_id, _)] = plane.messages("eval.browser")
    assert plane.messages("eval.cpu") == []
    plane.bus.delete(keys.beat("g"))
    plane.ledger.fail(plane.claim((job_id, 1)), "nobody brought games")
    until(lambda: plane.loop.tick() and plane.messages("eval.cpu"))
    [(moved, attempt)] = plane.messages("eval.cpu")
    assert (plane.ledger.job(job_id).state, attempt) == (JobState.CANCELLED, 1)
    assert plane.ledger.job(moved).job.payload == plane.ledger.job(job_id).job.payload


def test_a_run_whose_settings_do_not_parse_fails_alone(plane: Plane) -> None:
    plane.worker("selfplay.cpu")
    plane.create()
    record = plane.ledger.run("r").record
    plane.ledger.create_run(msgspec.structs.replace(record, run="bad", sections=b'{"search": {"oops": 1}}'))
    plane.loop.tick()
    assert plane.ledger.run("bad").state is RunState.FAILED
    assert "search.oops" in plane.ledger.run("bad").reason
    assert len(plane.ledger.jobs("r")) == 2


def test_a_holder_elsewhere_or_alive_is_believed(plane: Plane) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for holder in (f"alpha:{ended.pid}:0:another-boot/1", f"alpha:{os.getpid()}:0:{process_space()}"):
        lock = DaemonLock(plane.client, holder, life_s=60.0)
        lock.hold()
        with pytest.raises(StateConflict, match="another daemon"):
            DaemonLock(plane.client, "beta:2:0").hold()
        lock.let_go()


def test_a_spent_budget_ends_the_run_and_then_tells_machines_to_end(plane: Plane) -> None:
    plane.loop.budget = BudgetConfig(money=1.0)
    plane.loop.fleet = Fleet("0", "", "", "redis", 20.0, 2.0, 8.0, 0)
    plane.create()
    for later_s in (0, 1800):  # half an hour of a machine that costs two an hour
        plane.later_ms = 1000 * later_s
        beat = heartbeat("selfplay", "w1", sent_ms=10_000_000, queues=("selfplay.cpu",), per_hour=2.0)
        plane.bus.put(keys.beat("w1"), encode(beat), life_s=60)
        assert plane.loop.tick()
    run = plane.ledger.run("r")
    assert (run.state, run.reason) == (RunState.FINISHED, "budget spent: 1 USD")
    cost = plane.rest.get("/v1/runs/r/cost").json()
    assert (cost["currency"], cost["unpriced"], cost["ends_in_s"]) == ("USD", [socket.gethostname()], None)  # the daemon's own machine
    assert told(plane).over == ""
    plane.later_ms += 10_000
    assert plane.loop.tick()
    assert told(plane).over == "budget spent: 1 USD"
    plane.loop.budget = BudgetConfig(money=5.0)
    assert plane.loop.tick()
    assert told(plane).over == ""


def test_everybody_hears_on_which_hosts_inference_workers_are(plane: Plane) -> None:
    plane.loop.fleet = Fleet("0", "", "", "redis", 20.0, 2.0, 8.0, 0)
    for role, host in (("inference", "south"), ("inference", "north"), ("inference", "south"), ("selfplay", "east")):
        worker = f"{role}@{host}:{len(host)}"
        plane.bus.put(keys.beat(worker), encode(heartbeat(role, worker, host, sent_ms=10_000_000)), life_s=60)
    assert plane.loop.tick()
    assert told(plane).inference_hosts == ("north", "south")


def told(plane: Plane) -> Fleet:
    return decode(plane.bus.get(keys.FLEET) or b"", Fleet)
