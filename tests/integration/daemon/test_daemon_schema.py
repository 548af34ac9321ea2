"""Whatever is asked of the REST interface, it answers as its OpenAPI document says, and never with an error of its own making."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from rest_site import RestSite
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GradeResult, Job, MatchResult, MatchSpec, RunRecord, WeightEvent

EXAMPLES = 8  # for each operation


def make_app(home: Path) -> FastAPI:
    """An interface with something behind every route; event streams end at once, as when the daemon does."""
    site = RestSite(home, doubles={"rate_per_s": 1e6})
    services = site.services
    services.health.tick_ok([], now_s=time.monotonic() + 3600)  # ready however long this takes
    services.streams.close()
    bus, ledger = services.bus, services.ledger
    ledger.create_run_once(RunRecord("0", b"{}", {}, str(home / "0"), 1), None)
    ledger.enqueue_once(None, Job("", "0", Kind.SELFPLAY, "cpu"))
    site.beat("w1", "selfplay.cpu", "eval.cpu")
    sha256, uri = open_store("file", directory=home / "0" / "weights").put(b"weights")
    bus.publish(keys.weights("0"), encode(WeightEvent("0", 1, sha256, uri, 10, 0)))
    bus.publish(keys.results("0"), encode(MatchResult(MatchSpec("latest", "uct:1", 2, 8, 0, 0), "weights:1", "uct:1", 1, 0, 1, 5)))
    bus.publish(keys.results("0"), encode(GradeResult(1, 64, 200, 18, 8)))
    return site.app


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def questions() -> list[tuple[str, GenerationMode]]:
    """Every operation, asked well and, where it takes anything, badly."""
    paths = RestSite().app.openapi()["paths"]
    asked = [(f"{method.upper()} {path}", item) for path, methods in paths.items() for method, item in methods.items()]
    bad = [(label, GenerationMode.NEGATIVE) for label, item in asked if item.get("parameters") or "requestBody" in item]
    return [*((label, GenerationMode.POSITIVE) for label, _ in asked), *bad]


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    app = make_app(tmp_path_factory.mktemp("schema"))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})
    found: Iterable[Any] = schema.get_all_operations()  # one that is damaged has no ok()
    return {result.ok().label: result.ok() for result in found}


@pytest.mark.parametrize(("label", "mode"), questions(), ids=lambda value: getattr(value, "value", value))
def test_every_answer_is_as_documented(operations: dict[str, Any], label: str, mode: GenerationMode) -> None:
    @seed(2026)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operations[label].as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers={"Host": "127.0.0.1"}, checks=CHECKS)

    ask()
