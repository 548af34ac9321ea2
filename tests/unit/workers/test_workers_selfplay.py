"""Worker children keep to cores of their own."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from azq.actor.slice import PATIENCE_S, Slice
from azq.config import RunSections
from azq.ledger.types import Lease
from azq.wire.kinds import Kind
from azq.wire.messages import Job
from workers import selfplay


@pytest.mark.parametrize(("published", "stall_s", "waits_s"), [([], 1.0, 1.0), (["event"], 1.0, PATIENCE_S), ([], 0.0, PATIENCE_S)])
def test_a_run_without_weights_gives_its_slot_back_as_soon_as_one_that_its_limiter_holds(
    published: list[str], stall_s: float, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, asked = MagicMock(), list[Slice]()
    context.sections_now.return_value = RunSections()
    monkeypatch.setattr(selfplay, "read_weights", lambda bus, run: published)
    monkeypatch.setattr(selfplay, "SelfPlay", lambda ledger, part, *_, **__: asked.append(part) or MagicMock())
    selfplay._play(context, Lease(Job("r:1", "r", Kind.SELFPLAY, "cpu", stall_s=stall_s), 1, "w", 10.0))
    assert [part.patience_s for part in asked] == [waits_s]
