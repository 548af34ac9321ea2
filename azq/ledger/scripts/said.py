"""What every script can say of its changes: events for those who watch, answers kept for requests that are sent twice."""

from __future__ import annotations

from azq.ledger.rules import KEPT_EVENTS
from azq.ledger.types import ONCE_LIFE_S
from azq.wire.messages import UNCHECKED

SAID = (
    """
local function note(kind, about)
  call('XADD', EVENTS, 'MAXLEN', '~', MOST_EVENTS, '*', 'f', cmsgpack.pack({UNCHECKED, {'RunEvent', kind, now, about}}))
end

local function note_job(kind, of)
  local job = call('HMGET', JOB_PREFIX .. of, 'kind', 'tag', 'attempt', 'owner', 'error')
  note(kind, {job = of, kind = job[1], tag = job[2], attempt = job[3], owner = job[4], error = job[5]})
end

-- What was created under this key before; nil where nothing was. Another fingerprint is a conflict.
local function first_answer(fingerprint)
  if not ONCE or call('EXISTS', ONCE) == 0 then return nil end
  if call('HGET', ONCE, 'fingerprint') ~= fingerprint then return {'reused'} end
  return {'replayed', call('HGETALL', ONCE)}
end

local function remember(fingerprint, key, of)
  if not ONCE then return end
  call('HSET', ONCE, unpack(call('HGETALL', key)))
  call('HSET', ONCE, 'fingerprint', fingerprint, 'number', of)
  call('EXPIRE', ONCE, ONCE_LIFE_S)
end
""".replace("MOST_EVENTS", str(KEPT_EVENTS))
    .replace("UNCHECKED", str(UNCHECKED))
    .replace("ONCE_LIFE_S", str(ONCE_LIFE_S))
)
