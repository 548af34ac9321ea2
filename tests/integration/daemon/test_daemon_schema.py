"""Whatever is asked of the REST interface, it answers as its OpenAPI document says, and never with an error of its own making."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings

from azq.bus.memory import MemoryBus
from azq.config import DaemonConfig
from azq.ledger import MemoryLedger
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import GradeResult, Heartbeat, MatchResult, MatchSpec, RunRecord, WeightEvent
from daemon.api.app import create_app
from daemon.api.services import Services
from daemon.health import Health

EXAMPLES = 12  # for each operation


def make_app(home: Path) -> FastAPI:
    """An interface with something behind every route; event streams end at once, as when the daemon does."""
    bus = MemoryBus()
    ledger = MemoryLedger(bus)
    services = Services(ledger, bus, DaemonConfig(rate_per_s=1e9, rate_burst=10**9), Health(), home, lambda: ["connect_four"])
    services.health.tick_ok([])
    services.streams.close()
    ledger.create_run(RunRecord("0", b"{}", {}, str(home / "0"), 1))
    ledger.enqueue("0", "selfplay", "cpu")
    beat = Heartbeat("selfplay", "w1", "h", 7, "0", 1, 0, 0, queues=("selfplay.cpu", "eval.cpu"))
    bus.put(keys.beat("w1"), encode(beat), life_s=3600)
    sha256, uri = open_store("file", directory=home / "0" / "weights").put(b"weights")
    bus.publish(keys.weights("0"), encode(WeightEvent("0", 1, sha256, uri, 10, 0)))
    bus.publish(keys.results("0"), encode(MatchResult(MatchSpec("latest", "uct:1", 2, 8, 0, 0), "weights:1", "uct:1", 1, 0, 1, 5)))
    bus.publish(keys.results("0"), encode(GradeResult(1, 64, 200, 18, 8)))
    return create_app(services)


@pytest.fixture(scope="module")
def schema_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("schema")


@pytest.fixture
def rest_schema(schema_home: Path) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", make_app(schema_home), headers={"Host": "127.0.0.1"})


schema = schemathesis.pytest.from_fixture("rest_schema")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_documented(case: schemathesis.Case) -> None:
    case.headers["Host"] = "127.0.0.1"
    case.call_and_validate()
