"""How large a run's network is, which grows in some runs, beside what its settings began with. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from azq.config import NetworkConfig
from azq.ledger.records import known_section
from azq.wire.messages import RunRecord, WeightEvent

_DEFAULT = NetworkConfig()


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """A network's kind and size; the present one is that of the newest weights, None before there are any that say theirs."""

    kind: str
    configured_blocks: int  # network.blocks, what learner.growth starts from
    configured_channels: int
    blocks: int | None = None
    channels: int | None = None

    def __str__(self) -> str:
        configured = f"{self.configured_blocks}x{self.configured_channels}"
        now = configured if self.blocks is None else f"{self.blocks}x{self.channels}"
        return now if now == configured else f"{now}, from {configured}"


class _Network(msgspec.Struct):
    kind: str = _DEFAULT.kind
    blocks: int = _DEFAULT.blocks
    channels: int = _DEFAULT.channels


def network_status(record: RunRecord, weights: WeightEvent | None) -> NetworkStatus:
    """What a run's settings name and its newest weights have; the defaults where settings do not parse."""
    configured = known_section(record, "network", _Network)
    known = weights if weights is not None and weights.blocks else None
    return NetworkStatus(
        kind=configured.kind,
        configured_blocks=configured.blocks,
        configured_channels=configured.channels,
        blocks=known.blocks if known else None,
        channels=known.channels if known else None,
    )
