"""Bad runs beside a good one: it is answered all along, they are named, and served once they are mended."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from inference_doubles import CONFIG, NETWORK, SPEC, Shelf, ask, observations, weights
from waiting import PATIENCE_S, until

from azq.bus.redis import RedisBus
from azq.config import RunConfig, RunSections, WorkerConfig, dump_run
from azq.errors import DeviceError, ExitCode, MissingExtra
from azq.inference.ask.client import StreamEvaluator
from azq.inference.device.engine import Engine
from azq.inference.serve import loading, roster, served
from azq.inference.serve.server import InferenceServer
from azq.ledger import Ledger
from azq.nets import NetSpec
from azq.nets.device import Gauge
from azq.status.observe import Watch
from azq.waiting import Backoff
from azq.wire import keys
from azq.wire.connect import connect as open_client
from azq.wire.messages import RunRecord
from workers.inference import ServingBeat, serve


class Broken:
    """A game whose rules raise."""

    def observation_planes(self):
        return 2, 6, 7

    def __getattr__(self, name):
        raise LookupError("no such card")


def missing():
    raise MissingExtra("game openspiel:chess needs open_spiel; `pip install open_spiel`")


def exiting():
    raise SystemExit(3)


BAD = {
    "extra": (missing, "game openspiel:chess needs open_spiel; `pip install open_spiel`"),
    "rules": (lambda: NetSpec.of(Broken()), "LookupError: no such card"),
    "exits": (exiting, "SystemExit: 3"),
}


class Place:
    """A worker over real brokers, and runs whose games are bad until they are mended."""

    def __init__(self, broker):
        self.client = open_client(broker.control_url)
        self.control, self.data = RedisBus(self.client), RedisBus(broker.data_url)
        self.ledger, self.shelves, self.bad = Ledger(self.client), {}, dict(BAD)
        self.start_server()
        self.beat = ServingBeat(self.control, self.server, "inference@here:1", WorkerConfig(heartbeat_s=0.05), Gauge(torch.device("cpu")))
        self.stop, self.failures = threading.Event(), []
        self.thread = threading.Thread(target=self._serve)

    def start_server(self):
        self.server = InferenceServer(self.control, self.data, self.ledger, self._fetch, Engine(CONFIG), "inference@here:1", self._spec)

    def run(self, name):
        sections = RunSections(run=RunConfig(seed=len(self.shelves)), network=NETWORK)
        self.ledger.create_run(RunRecord(name, json.dumps(dump_run(sections)).encode(), {}, "", 1))
        self.shelves[name] = Shelf(self.control, name)
        self.shelves[name].publish(1, weights(1))
        return StreamEvaluator(self.data, name, f"of {name}", num_actions=SPEC.num_actions, resend_after_s=1.0)

    def conditions(self, run):
        return list(Watch(self.client).summary(run).conditions)

    def _fetch(self, view):
        return self.shelves[view.record.run].fetch(view)

    def _spec(self, sections):
        bad = self.bad.get(list(self.shelves)[sections.run.seed])
        return bad[0]() if bad else SPEC

    def _serve(self):
        try:
            serve(self.server, self.beat.turn, self.stop)
        except BaseException as error:
            self.failures.append(error)

    def close(self):
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join(PATIENCE_S)
        self.server.close()
        self.data.close()
        self.control.close()


@pytest.fixture
def place(broker, monkeypatch):
    for module in (roster, served, loading):
        monkeypatch.setattr(module, "AGAIN", Backoff(0.05, 0.2))
    made = Place(broker)
    yield made
    made.close()


def test_one_bad_run_costs_no_other_an_answer_and_is_served_once_it_is_mended(place):
    clients = {name: place.run(name) for name in ("good", *BAD)}
    place.thread.start()
    for name, (_, reason) in BAD.items():
        until(lambda name=name: place.conditions(name) != [], f"{name} is named")
        assert place.conditions(name) == [f"not served by {Watch(place.client).summary(name).workers[0].host}: {reason}"]
        assert len(ask(clients["good"], observations(4)).logits) == 4
    assert place.conditions("good") == []
    for name in BAD:
        handle = clients[name].submit(observations(4))
        assert clients[name].result(handle, timeout_s=0.1) is None
        del place.bad[name]
        until(lambda name=name: place.server.versions.get(name) == 1, f"{name} is served")
        answer = clients[name].result(handle, timeout_s=PATIENCE_S)
        assert answer is not None
        assert len(ask(clients["good"], observations(4)).logits) == 4
    until(lambda: all(place.conditions(name) == [] for name in BAD), "nothing is said any more")
    assert place.failures == []


def test_a_run_that_kills_its_worker_as_it_loads_is_left_out_after_three_times(place, broker):
    """A worker that leaves because of a device it lost stands for one that is killed: its note stays."""

    def dies():
        raise DeviceError("lost")

    place.bad = {"deadly": (dies, "")}
    client = place.run("good")
    place.run("deadly")
    deaths = 0
    while True:
        if not place.thread.is_alive():
            place.thread = threading.Thread(target=place._serve)
            place.thread.start()
        until(lambda: not place.thread.is_alive() or "deadly" in place.server.unserved, "it dies or knows")
        if place.thread.is_alive():
            break
        assert place.failures.pop().exit_code is ExitCode.DEVICE
        deaths += 1
        place.server.close()
        place.start_server()
    assert deaths == 3
    assert place.server.unserved["deadly"].startswith("loading run deadly has killed its inference worker 3 times here")
    assert len(ask(client, observations(4)).logits) == 4
    assert place.control.get(keys.trial("deadly", "load@here:cpu")) is not None
