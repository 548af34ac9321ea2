"""Who may work on a control plane: only those that speak its schema, which is that of everything kept there."""

from __future__ import annotations

import redis

from azq.errors import SchemaMismatch
from azq.wire import keys
from azq.wire.connect import address_of, translate
from azq.wire.messages import READABLE, SCHEMA

UNMARKED = 1  # of control planes from before the mark: whatever runs they hold were written under this schema

# ARGV[1] schema of the caller, ARGV[2] that of a plane with runs and without a mark, ARGV[3] oldest schema that the caller raises to its
# own, ARGV[4] the mark, ARGV[5] names of all runs: not declared, for most roles may only read them. Returns the plane's schema; a mark
# never goes down. Who may not write it leaves a plane without a mark to the daemon.
_AGREE = """
local mark = redis.call('GET', ARGV[4])
local before = mark
if not mark then mark = redis.call('SCARD', ARGV[5]) > 0 and ARGV[2] or ARGV[1] end
if tonumber(mark) >= tonumber(ARGV[3]) and tonumber(mark) < tonumber(ARGV[1]) then mark = ARGV[1] end
if mark ~= before then redis.pcall('SET', ARGV[4], mark) end -- no write without need: a full server must let its learner start
return mark
"""


def agree_on_schema(client: redis.Redis, *, upgrade: bool = False) -> None:
    """Marks a fresh control plane with this azq's schema, or compares. Raises `SchemaMismatch` naming both numbers, and `BrokerError`.

    With `upgrade` the plane of an older azq whose messages this one reads is raised to this schema: for the daemon, once it has
    its lock. Processes of the older azq are refused from then on.
    """
    oldest = min(READABLE) if upgrade else SCHEMA
    with translate(client):
        answer = client.eval(_AGREE, 0, str(SCHEMA), str(UNMARKED), str(oldest), keys.SCHEMA, keys.RUNS)
    kept = bytes(answer).decode()
    if kept != str(SCHEMA):
        raise SchemaMismatch(f"the control plane at {address_of(client)} has schema {kept}, this azq speaks {SCHEMA}; {_remedy(int(kept))}")


def _remedy(kept: int) -> str:
    if kept > SCHEMA:
        return "install the azq that its daemon runs"
    if kept in READABLE:
        return "start the daemon of this azq first"
    return "finish its runs with the azq that began them, or use another broker"
