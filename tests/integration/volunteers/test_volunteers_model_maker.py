"""A gateway's child makes the newest network for browsers, and those that matches of tabs are between."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from inference_doubles import weights
from waiting import PATIENCE_S, until

from azq.bus.catalog import ModelCatalog
from azq.bus.redis import RedisBus
from azq.config import BrokerConfig, Config, RunSections
from azq.learner.publish import Publisher
from azq.ledger import Ledger
from azq.ledger.records import record_of
from azq.parts.volunteers.model_maker import follow
from azq.store import open_run_store
from azq.wire.codec import encode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GradeSpec, Job, MatchSpec


def test_versions_of_matches_are_made_besides_the_newest(broker: Any, tmp_path: Path) -> None:
    client = connect(broker.control_url)
    sections = RunSections.model_validate({"run": {"game": "connect_four"}, "volunteers": {"kinds": ["selfplay", "eval"]}})
    record = record_of("r", sections, tmp_path / "r", created_ms=1)
    ledger, bus = Ledger(client), RedisBus(client)
    ledger.create_run(record)
    publisher = Publisher(bus, open_run_store("file", record, tmp_path, client), "r")
    for version in range(1, 5):
        publisher.publish(weights(seed=version, version=version), version, 0)
    for spec in (MatchSpec("weights:4", "weights:2", 2, 8, 0, 1), MatchSpec("latest", "uct:9", 2, 8, 0, 1), GradeSpec(3, 2, 8, 1)):
        ledger.enqueue(Job("", "r", Kind.EVAL, "browser", payload=encode(spec)))
    ledger.enqueue(Job("", "r", Kind.EVAL, "cpu", payload=encode(MatchSpec("weights:4", "weights:3", 2, 8, 0, 1))))
    catalog, stop = ModelCatalog(bus, "r"), threading.Event()
    worker = threading.Thread(
        target=follow, args=(Config(home=tmp_path, broker=BrokerConfig(control_url=broker.control_url)), client, stop)
    )
    worker.start()
    try:
        until(lambda: len(catalog.all()) >= 2, "networks")
    finally:
        stop.set()
        worker.join(PATIENCE_S)
    assert {event.version for event in catalog.all()} == {4, 2}
    client.close()
