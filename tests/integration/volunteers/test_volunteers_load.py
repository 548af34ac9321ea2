"""A thousand tabs at one gateway: everybody is served, and what a game costs it. Its line of figures is that of docs/benchmarks.md."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from crowd import Crowd
from gateway_doubles import Hall
from waiting import PATIENCE_S, until

from azq.process.proc import cpu_s, resident_bytes

TABS = int(os.environ.get("AZQ_TEST_TABS", "1000"))
PACE_S = float(os.environ.get("AZQ_TEST_PACE_S", "10"))
MEASURED_S = float(os.environ.get("AZQ_TEST_SECONDS", "30"))
CORE = 1.0  # CPU-seconds a second


@pytest.mark.release
def test_a_thousand_tabs_on_one_core(broker: Any, tmp_path: Path) -> None:
    hall = Hall(broker, tmp_path, max_tabs=150_000, keys_per_day=100_000)
    hall.open()
    crowd, over = Crowd(f"ws://127.0.0.1:{hall.port}", TABS, PACE_S), asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(crowd.live(over),), daemon=True)
    try:
        process = hall.start_gateway()
        thread.start()
        until(lambda: crowd.accepted >= TABS, "a game of each tab")
        before_s, accepted, took = cpu_s([process.pid]), crowd.accepted, crowd.sent_bytes + crowd.received_bytes
        threading.Event().wait(MEASURED_S)
        spent_s, games = cpu_s([process.pid]) - before_s, crowd.accepted - accepted
        spent = f"{spent_s / MEASURED_S:.3f} of a core, {1000 * spent_s / games:.2f} ms of CPU a game"
        wire = (crowd.sent_bytes + crowd.received_bytes - took) / games
        mib = resident_bytes(process.pid) / 2**20
        print(f"\n{TABS} tabs, {games / MEASURED_S:.0f} games/s: {spent}, {wire:.0f} bytes a game, {mib:.0f} MiB")
        assert crowd.welcomed == TABS
        assert crowd.refused == []
        assert spent_s / MEASURED_S < CORE
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE_S)
        hall.settle()
        loop.close()
    assert hall.balanced()
    hall.close()
