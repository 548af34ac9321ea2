"""Self-play whose budget of simulations grows over the run's horizon, and whom it asks."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until
from worker_doubles import RUN
from worker_doubles import Fleet as Workers

from azq.bus.redis import RedisBus
from azq.config import BrokerConfig, Config, SearchConfig, SearchStage, WorkerConfig
from azq.ledger.types import JobState
from azq.wire import keys
from azq.wire.codec import decode, encode
from azq.wire.messages import Fleet, SampleEvent, WeightEvent
from workers.children import Board, ChildHeartbeat
from workers.context import Context


def test_a_slice_searches_as_its_share_of_the_horizon_says(fleet: Workers) -> None:
    fleet.create_run(SearchConfig(num_simulations=4, schedule=(SearchStage(at=0.5, num_simulations=24),)), until={"games": 40.0})
    fleet.start()
    deepest = []
    for _ in range(2):
        before = fleet.finished()
        view = fleet.send(slice_s=1.0)
        until(lambda view=view: fleet.ledger.job(view.job.job_id).state is JobState.DONE, "end of the job")
        events = [decode(entry.frame, SampleEvent) for entry in fleet.bus.after(keys.samples(RUN), "0", count=1_000_000)]
        assert len(events) == fleet.finished() > before + 20
        deepest.append(max(int(np.frombuffer(event.record.simulations, "<u2").max()) for event in events))
    assert deepest == [4, 24]


def test_a_weight_event_that_does_not_decode_does_not_set_the_schedule_back(fleet: Workers, broker: Any) -> None:
    fleet.create_run(SearchConfig(num_simulations=4, schedule=(SearchStage(at=0.5, num_simulations=24),)), until={"steps": 100.0})
    context = Context(Config(broker=BrokerConfig(control_url=broker.control_url, data_url=broker.data_url)), ChildHeartbeat(Board(1), 0))
    assert context.sections_now(fleet.ledger.run(RUN)).search.num_simulations == 4
    fleet.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, 1, "0" * 64, "", 80, 0)))
    fleet.bus.publish(keys.weights(RUN), b"noise")
    assert context.sections_now(fleet.ledger.run(RUN)).search.num_simulations == 24


def test_stages_by_samples_follow_what_the_newest_weights_were_made_of(fleet: Workers, broker: Any) -> None:
    fleet.create_run(SearchConfig(num_simulations=4, schedule=(SearchStage(samples=1_000, num_simulations=24),)))
    context = Context(Config(broker=BrokerConfig(control_url=broker.control_url, data_url=broker.data_url)), ChildHeartbeat(Board(1), 0))
    budgets = []
    for samples in (0, 999, 1_000):  # 0: an older learner's weights do not say
        fleet.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, 1, "0" * 64, "", 80, 0, samples=samples)))
        budgets.append(context.sections_now(fleet.ledger.run(RUN)).search.num_simulations)
    assert budgets == [4, 4, 24]


HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("evaluator", "hosts", "asked"), [("auto", (HERE,), True), ("auto", (HERE, "south"), False), ("stream", (HERE,), False)]
)
def test_inference_workers_of_this_host_are_asked_directly_where_there_are_no_others(
    broker: Any, tmp_path: Path, evaluator: str, hosts: tuple[str, ...], asked: bool
) -> None:
    config = Config(
        home=tmp_path, broker=BrokerConfig(control_url=broker.control_url), worker=WorkerConfig.model_validate({"evaluator": evaluator})
    )
    context = Context(config, ChildHeartbeat(Board(1), 0))
    assert context.near_inference() is None  # no daemon says where they are
    RedisBus(broker.control_url).put(keys.FLEET, encode(Fleet("0", "", "", "", 20.0, 2.0, 8.0, 0, inference_hosts=hosts)))
    assert context.near_inference() == (tmp_path if asked else None)
