"""The gateway's event loop says that it turns."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import Any, cast

import pytest
from waiting import PATIENCE_S

from azq.config import GatewayConfig
from azq.parts.volunteers import gateway as module
from azq.parts.volunteers.gateway import Gateway


def test_the_loop_turns_while_a_look_waits_for_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FOLLOW_S", 0.0)
    begun, go = threading.Event(), threading.Event()

    def wanting() -> list[Any]:
        begun.set()
        assert go.wait(PATIENCE_S)
        return []

    async def live() -> None:
        gateway = Gateway(GatewayConfig(), cast("Any", None), itertools.count().__next__)
        monkeypatch.setattr(gateway, "_wanting", wanting)
        tasks = [asyncio.create_task(work) for work in (gateway.follow(), gateway.turn())]
        assert await asyncio.to_thread(begun.wait, 60.0)
        before = gateway.turned_s
        while gateway.turned_s < before + 10:
            await asyncio.sleep(0)
        go.set()
        gateway.stopping.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(live(), 60.0))
