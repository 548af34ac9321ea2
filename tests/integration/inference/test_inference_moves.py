"""Moves over REST with real networks behind a real broker: the daemon's way, without torch of its own."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial

import pytest
from inference_doubles import RUN, SECTIONS, OneRun, serving, weights
from memory_broker import MemoryBus, MemoryLedger
from rest_site import RestSite
from waiting import until

from azq import games
from azq.arena.searcher import Searcher
from azq.config import BrokerConfig, InferenceConfig, dump_run
from azq.inference.ask.local import LocalEvaluator
from azq.ledger.types import RunState
from azq.wire import keys
from azq.wire.messages import RunRecord
from daemon.api import rest
from daemon.api.moves import for_latency


@pytest.fixture
def ledger():
    return MemoryLedger(MemoryBus())


@pytest.fixture
def http(broker, control, ledger):
    ledger.create_run(RunRecord(RUN, json.dumps(dump_run(SECTIONS)).encode(), {}, "", 1))
    planes = BrokerConfig(control_url=broker.control_url, data_url=broker.data_url)
    evaluator_of = partial(rest._evaluator, planes, itertools.count(1))
    site = RestSite(plane=(ledger, control), doubles={"evaluator_of": evaluator_of})
    yield site.http
    site.app.state.turns.close()


def test_moves_are_those_of_the_same_search_over_the_same_network(http, connect, shelf):
    shelf.publish(1, weights(1))
    shelf.publish(2, weights(2, version=2))
    body = {"positions": [{"actions": []}, {"actions": [3, 3, 2]}], "num_simulations": 120, "seed": 5, "weights": 1}
    with serving(connect.server(shelf)):
        answer = http.post(f"/v1/runs/{RUN}/moves", json=body).json()
        newest = http.post(f"/v1/runs/{RUN}/moves", json={"positions": [{}]}).json()
    assert (answer["weight_version"], newest["weight_version"]) == (1, 2)
    game = games.load("connect_four")
    local = LocalEvaluator.from_bytes(game, weights(1), InferenceConfig(device="cpu", threads=1))
    searcher = Searcher(game, local, for_latency(SECTIONS.search, game, 120), 120, slots=2)
    for move, result in zip(answer["moves"], searcher.results([[], [3, 3, 2]]), strict=True):
        visits = {one["action"]: one["visits"] for one in move["candidates"]}
        assert sum(visits.values()) == 120
        assert move["action"] == result.best_action
        assert visits == {action: int(result.visit_counts[action]) for action in visits}
    local.close()


def test_nothing_is_left_behind(http, connect, shelf):
    shelf.publish(1, weights(1))
    with serving(connect.server(shelf)):
        assert http.post(f"/v1/runs/{RUN}/moves", json={"positions": [{}], "num_simulations": 16}).status_code == 200
    assert connect.data().values(keys.reply("")) == {}


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FINISHED, RunState.FAILED])
@pytest.mark.parametrize("door", ["moves", "levels"])
def test_a_run_that_ended_days_ago_is_loaded_again_for_whoever_plays(http, connect, shelf, ledger, state, door):
    ledger.set_run_state(RUN, state)
    shelf.publish(1, weights(1))
    old = OneRun()
    old.views = {RUN: replace(old.views[RUN], state=state, changed_ms=0)}
    with serving(server := connect.server(shelf, ledger=old)):
        until(lambda: old.looks >= 1, "the runs were looked at")
        assert server.versions == {}, "it sleeps"
        if door == "levels":
            assert http.get(f"/v1/runs/{RUN}/levels").status_code == 200
            until(lambda: server.versions == {RUN: 1}, "loaded before the first move")
        answer = http.post(f"/v1/runs/{RUN}/moves", json={"positions": [{}], "num_simulations": 16})
        assert (answer.status_code, answer.json()["weight_version"]) == (200, 1)
        assert server.versions == {RUN: 1}
