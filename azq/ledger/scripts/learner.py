"""Scripts of a run's learner: its place, what it inserted, the weights it announces.

A server that has no memory left refuses a script whose first write would need some, and lets one go on that has written before. What
drains the samples must not wait for memory, so these scripts begin with a write that needs none.
"""

from __future__ import annotations

from azq.ledger.rules.learner import WRITTEN_OFF
from azq.ledger.rules.runs import LOST_WITH_IT

# ARGV[3] token and ARGV[4] holder of the learner's place.
_FENCE = """
local function write_without_memory() call('HDEL', LEARNER, '') end
local place = call('HMGET', LEARNER, 'token', 'holder')
local newer = tonumber(place[1] or '0') - tonumber(ARGV[3])
if newer > 0 or (newer == 0 and (place[2] or '') ~= ARGV[4]) then return {'superseded', place[2] or ''} end
"""

# ARGV[3] holder, ARGV[4] its life in ms, ARGV[5] a holder that is dead, ARGV[6] consumer group. Answers ok and the token, missing,
# or held and by whom.
TAKE_LEARNER = """
if call('EXISTS', RUN) == 0 then return {'missing'} end
local place = call('HMGET', LEARNER, 'holder', 'until_ms')
if place[1] and tonumber(place[2]) > now and place[1] ~= ARGV[3] and place[1] ~= ARGV[5] then return {'held', place[1]} end
call('HDEL', LEARNER, 'until_ms')
call('HSET', LEARNER, 'holder', ARGV[3], 'until_ms', text(now + tonumber(ARGV[4])))
redis.pcall('XGROUP', 'CREATE', SAMPLES, ARGV[6], '0', 'MKSTREAM') -- which by itself would need memory; an error says that it is there
return {'ok', text(call('HINCRBY', LEARNER, 'token', 1))}
"""

# ARGV[5] its life in ms; 0 gives the place free. Answers ok, missing, or superseded and by whom.
RENEW_LEARNER = (
    _FENCE
    + """
if call('EXISTS', RUN) == 0 then return {'missing'} end
write_without_memory()
local until_ms = '0'
if ARGV[5] ~= '0' then until_ms = text(now + tonumber(ARGV[5])) end
call('HSET', LEARNER, 'token', ARGV[3], 'holder', ARGV[4], 'until_ms', until_ms)
return {'ok'}
"""
)

# ARGV[5] games inserted, ARGV[6] duplicates dropped, ARGV[7] consumer group, ARGV[8] how many finished games broke the rules and are
# abandoned instead, their uids and reasons, then ids of sample entries to acknowledge and delete.
RECORD_INSERTED = (
    _FENCE
    + """
if call('EXISTS', RUN) == 0 then return {'missing'} end
write_without_memory()
local refused = tonumber(ARGV[8])
local MOST_UNPACKED = 1000 -- arguments of one call: Lua's stack holds some thousand
local first = 9 + 2 * refused
for from = first, #ARGV, MOST_UNPACKED do
  local to = math.min(from + MOST_UNPACKED - 1, #ARGV)
  call('XACK', SAMPLES, ARGV[7], unpack(ARGV, from, to))
  call('XDEL', SAMPLES, unpack(ARGV, from, to))
end
call('HSET', LEDGER, 'inserted', ARGV[5], 'duplicates_dropped', ARGV[6])
local opened = tonumber(call('HGET', LEDGER, 'opened') or '0')
for i = 9, 7 + 2 * refused, 2 do
  local finished = tonumber(ARGV[i]) <= opened and call('HEXISTS', OPEN, ARGV[i]) == 0
  if finished and call('HSETNX', ABANDONED, ARGV[i], ARGV[i + 1]) == 1 then
    call('HINCRBY', LEDGER, 'abandoned', 1)
    call('HINCRBY', LEDGER, 'finished', -1)
  end
end
return {'ok'}
"""
)

# ARGV[5] games in the log, ARGV[6] the highest number there, then first and last of each span of numbers that are neither there nor on
# their way. Answers ok and how many games were written off, missing, or superseded and by whom.
RESTORE = (
    _FENCE
    + """
if call('EXISTS', RUN) == 0 then return {'missing'} end
write_without_memory()
local opened = math.max(tonumber(call('HGET', LEDGER, 'opened') or '0'), tonumber(ARGV[6]))
local gone = 0
for i = 7, #ARGV, 2 do
  for number = tonumber(ARGV[i]), tonumber(ARGV[i + 1]) do
    local uid = text(number)
    if call('HEXISTS', OPEN, uid) == 0 then gone = gone + call('HSETNX', ABANDONED, uid, 'WRITTEN_OFF') end
  end
end
call('HINCRBY', LEDGER, 'written_off', gone)
local finished = opened - call('HLEN', OPEN) - call('HINCRBY', LEDGER, 'abandoned', gone)
call('HSET', LEDGER, 'opened', text(opened), 'finished', text(finished), 'inserted', ARGV[5])
note('run.restored', {games = ARGV[5], written_off = text(gone), lost = 'LOST_WITH_IT'})
return {'ok', text(gone)}
""".replace("WRITTEN_OFF", WRITTEN_OFF).replace("LOST_WITH_IT", LOST_WITH_IT)
)

# ARGV[5] WeightEvent frame. Answers ok, or superseded and by whom.
ANNOUNCE_WEIGHTS = (
    _FENCE
    + """
call('XADD', WEIGHTS, '*', 'f', ARGV[5])
return {'ok'}
"""
)
