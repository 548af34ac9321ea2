"""The Idempotency-Key header: a request that creates something has its effect once, however often it is sent."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Header, Response
from pydantic import BaseModel

from azq.ledger.types import Once

REPLAYED = "Idempotency-Replayed"

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{1,255}$",
        description="A name of your own for this request, such as a UUID. Sent again within a day with the same body it gets the first "
        "answer and changes nothing; with another body it is refused with 422.",
    ),
]
REPLAYS: dict[int | str, dict[str, Any]] = {
    201: {
        "headers": {
            REPLAYED: {"description": "`true` on an answer that was given before under the same key.", "schema": {"type": "string"}},
        }
    }
}


def request_of(place: str, key: str | None, body: BaseModel) -> Once | None:
    """What the ledger knows a request by; None where no key was sent."""
    if key is None:
        return None
    return Once.of(place, key, json.dumps(body.model_dump(mode="json"), sort_keys=True).encode())


def mark_replayed(response: Response, replayed: bool) -> None:
    """Says so in the answer's headers."""
    if replayed:
        response.headers[REPLAYED] = "true"
