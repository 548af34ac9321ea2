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

    def find(self, record: RunRecord, sections: RunSections, version: int | None = None) -> ModelUpdate | None:
        """The message about a version's network, or the newest that tabs can load; None: there is none. Slow; raises `AzqError`."""
        ...

    def read(self, sha256: str) -> bytes | None:
        """A network that `find` told of."""
        ...


@dataclass(frozen=True, slots=True)
class Backing:
    """What a gateway works with."""

    ledger: Ledger
    guests: Guests
    judge: Judge
    networks: Networks
    secret: bytes
