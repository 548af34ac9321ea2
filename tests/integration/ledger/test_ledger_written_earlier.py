"""A run that an earlier azq left behind is read, played on and trained on by today's."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from learner_doubles import ListTracker

from azq import games
from azq.bus.redis import RedisBus
from azq.config import StoreConfig, parse_run
from azq.learner.opening import LearnerSetup
from azq.ledger.ledger import Ledger
from azq.ledger.types import JobState, RunState
from azq.status import history
from azq.status.observe import read_results, read_weights
from azq.store import open_store
from azq.wire import keys
from azq.wire.arrays import unpack_record
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.messages import LearnerStatus, RunEvent

OLD = Path(__file__).parents[2] / "golden" / "written_earlier"
RUN = "old"


def restore(client: Any) -> None:
    for key, entry in json.loads((OLD / "control.json").read_text("utf-8")).items():
        value = entry["value"]
        match entry["type"]:
            case "string":
                client.set(key, b64decode(value))
            case "hash":
                client.hset(key, mapping={b64decode(field): b64decode(held) for field, held in value.items()})
            case "zset":
                client.zadd(key, {b64decode(member): score for member, score in value})
            case "list":
                client.delete(key)
                client.rpush(key, *(b64decode(item) for item in value))
            case "set":
                client.sadd(key, *(b64decode(item) for item in value))
            case "stream":
                for number, fields in value:
                    client.xadd(key, {b64decode(field): b64decode(held) for field, held in fields.items()}, id=number)


@pytest.fixture
def client(broker):
    client = connect(broker.control_url)
    restore(client)
    yield client
    client.close()


@pytest.fixture
def ledger(client):
    return Ledger(client)


@pytest.fixture
def bus(broker, client):
    bus = RedisBus(broker.control_url)
    yield bus
    bus.close()


def test_the_ledger_reads_the_run_its_jobs_and_its_counts(ledger):
    snapshot = ledger.snapshot(RUN)
    view = snapshot.view
    assert (view.state, view.reason, view.record.directory) == (RunState.PAUSED, "azq up was stopped", "/srv/azq/runs/old")
    assert (snapshot.counts.open, snapshot.counts.opened - snapshot.counts.finished) == (16, 16)
    assert snapshot.counts.finished == snapshot.counts.inserted > 500
    assert [view.job.kind for view in ledger.jobs_below(RUN, active_only=False)].count("eval") == 3
    [waiting] = snapshot.jobs
    assert (waiting.job.job_id, waiting.job.tag, waiting.state, waiting.job.slice_s) == ("old:2", "cpu", JobState.QUEUED, 60.0)


def test_what_is_told_of_it_is_read(bus):
    matches, grades = read_results(bus, RUN)
    assert len(matches) + len(grades) == 3
    assert not any(result.error for result in matches)
    assert [event.version for event in read_weights(bus, RUN, 10)] == [5, 4, 3, 2, 1]
    frame = bus.get(keys.learner_status(RUN))
    assert decode(frame, LearnerStatus).weight_version == 5
    assert all(decode(entry.frame, RunEvent) for entry in bus.after(keys.events(RUN), "0"))
    assert len(history.read(bus, RUN, 0)) == 5


def test_its_open_games_are_played_on(ledger):
    before = ledger.counts(RUN)
    ledger.set_run_state(RUN, RunState.RUNNING)
    [waiting] = ledger.snapshot(RUN).jobs
    lease = ledger.claim(waiting.job.job_id, waiting.attempt, "worker@test:1", 60.0)
    records = ledger.adopt(lease, 16)
    assert len(records) == 16
    assert any(record.actions for record in records)
    for record in records:
        state = games.load("tic_tac_toe").new_initial_state()
        for action in unpack_record(record, 9, 1)["actions"]:
            state.apply_action(int(action))
        assert not state.is_terminal()
    ledger.release(lease, records)
    assert ledger.counts(RUN) == before


def test_a_learner_trains_on_where_the_earlier_one_stopped(tmp_path, ledger, bus, client):
    folder = tmp_path / RUN
    shutil.copytree(OLD / "run", folder)
    view = ledger.run(RUN)
    sections = parse_run(msgspec.json.decode(view.record.sections), "test")
    learner = LearnerSetup(
        RUN,
        folder,
        sections,
        games.load("tic_tac_toe"),
        bus=bus,
        ledger=ledger,
        store=open_store(StoreConfig(), directory=folder / "weights", client=client),
        tracker=ListTracker(),
        consumer="learner@test:1",
    ).open()
    status = learner.status()
    assert (status.step, status.weight_version) == (70, 5)
    assert status.games_inserted == ledger.counts(RUN).inserted
