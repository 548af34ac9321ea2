"""What a gateway works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from azq.config import RunSections
from azq.ledger import Ledger
from azq.volunteers.guests import Guests
from azq.volunteers.judging import Judge
from azq.wire.messages import RunRecord
from azq.wire.tabs import ModelUpdate


class Networks(Protocol):
    """What tabs evaluate with."""

    def newest(self, record: RunRecord, sections: RunSections) -> ModelUpdate | None:
        """The message about the newest weights that tabs can load, None while there are none. May take a while; raises `AzqError`."""
        ...

    def read(self, sha256: str) -> bytes | None:
        """A network that `newest` told of."""
        ...


@dataclass(frozen=True, slots=True)
class Backing:
    """What a gateway works with."""

    ledger: Ledger
    guests: Guests
    judge: Judge
    networks: Networks
    secret: bytes
