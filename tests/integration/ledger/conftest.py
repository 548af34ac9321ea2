"""What the ledger promises is tested against memory and a real server alike."""

from __future__ import annotations

import pytest
from ledger_worlds import World

from azq.bus.memory import MemoryBus
from azq.bus.redis import RedisBus
from azq.ledger import Ledger, MemoryLedger
from azq.wire.connect import connect


@pytest.fixture(params=["memory", "server"])
def world(request):
    if request.param == "memory":
        bus = MemoryBus()
        yield World(lambda clock: MemoryLedger(bus, clock_ms=clock), bus)
        return
    client = connect(request.getfixturevalue("broker").control_url)
    yield World(lambda clock: Ledger(client, clock_ms=clock), RedisBus(client))
    client.close()
