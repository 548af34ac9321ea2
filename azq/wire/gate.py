"""Who may work on a control plane: only those that speak its schema, which is that of everything kept there."""

from __future__ import annotations

import redis

from azq.errors import SchemaMismatch
from azq.wire import keys
from azq.wire.connect import address_of, translate
from azq.wire.messages import SCHEMA

UNMARKED = 1  # of control planes from before the mark: whatever runs they hold were written under this schema

# KEYS[1] the mark, KEYS[2] names of all runs; ARGV[1] schema of the caller, ARGV[2] that of a plane with runs and without a mark.
# Returns the plane's schema, which never changes once it is there.
_AGREE = """
local mark = redis.call('GET', KEYS[1])
if mark then return mark end
mark = redis.call('SCARD', KEYS[2]) > 0 and ARGV[2] or ARGV[1]
redis.call('SET', KEYS[1], mark)
return mark
"""


def agree_on_schema(client: redis.Redis) -> None:
    """Marks a fresh control plane with this azq's schema, or compares. Raises `SchemaMismatch` naming both numbers, and `BrokerError`."""
    with translate(client):
        answer = client.eval(_AGREE, 2, keys.SCHEMA, keys.RUNS, str(SCHEMA), str(UNMARKED))
    kept = bytes(answer).decode()
    if kept != str(SCHEMA):
        raise SchemaMismatch(
            f"the control plane at {address_of(client)} has schema {kept}, this azq speaks {SCHEMA}; {_remedy(kept)} (docs/2-protocol.md)"
        )


def _remedy(kept: str) -> str:
    newer = kept.isdigit() and int(kept) > SCHEMA
    return "install the azq that its daemon runs" if newer else "finish its runs with the azq that began them, or use another broker"
