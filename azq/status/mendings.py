"""What was wrong with the keys of a run's ledger, and mended by the daemon: somebody wrote there who should not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from azq.bus.base import Bus
from azq.wire import keys

_DECODER = msgspec.msgpack.Decoder(dict[str, int])


def read_mended(frame: bytes | None) -> Mapping[str, int]:
    """Faults of the last hour -> when they were mended last, from what the run's `keys.mended` holds."""
    return _DECODER.decode(frame) if frame else {}


def mendings(bus: Bus, run: str, now_ms: int) -> list[str]:
    """The same as an operator reads it. Raises `BrokerError`."""
    return told(read_mended(bus.get(keys.mended(run))), now_ms)


def told(mended: Mapping[str, int], now_ms: int) -> list[str]:
    """A sentence a fault."""
    return [
        f"self-play failed in the ledger: {what}; the daemon mended it {max(0, now_ms - at_ms) / 60_000:.0f} min ago. "
        "A machine wrote what azq does not: `azq fleet list` names those let in, `azq fleet revoke` sends one away"
        for what, at_ms in sorted(mended.items())
    ]
