"""Scripts of open games: adopted, journaled, finished, abandoned, given back, inserted."""

from __future__ import annotations

# Arguments of a lease, ARGV[6] most games. Answers ok, then uid and record of each: from the pool first, then new ones.
ADOPT = """
if lost() then return {'lost'} end
local games = {'ok'}
if not may_work(call('HGET', JOB, 'kind')) then return games end
for _ = 1, tonumber(ARGV[6]) do
  local uid = call('LPOP', POOL)
  local frame = ''
  if uid then
    frame = call('HGET', OPEN, uid)
  else
    uid = text(call('HINCRBY', LEDGER, 'opened', 1))
    call('HSET', OPEN, uid, '')
  end
  call('SADD', HELD, uid)
  games[#games + 1] = uid
  games[#games + 1] = frame
end
return games
"""

_ALL_HELD = """
if lost() then return {'lost'} end
for i = 6, #ARGV, 2 do
  if call('SISMEMBER', HELD, ARGV[i]) == 0 then return {'lost', ARGV[i]} end
end
"""

# Arguments of a lease, then uid and GameRecord frame of each game. Nothing is written unless the lease holds all of them.
JOURNAL = (
    _ALL_HELD
    + """
for i = 6, #ARGV, 2 do call('HSET', OPEN, ARGV[i], ARGV[i + 1]) end
return {'ok', renew()}
"""
)

# Arguments of a lease, then uid and SampleEvent frame of each game. Closes the records and hands over the samples.
FINISH = (
    _ALL_HELD
    + """
for i = 6, #ARGV, 2 do
  call('HDEL', OPEN, ARGV[i])
  call('SREM', HELD, ARGV[i])
  call('XADD', SAMPLES, '*', 'f', ARGV[i + 1])
  call('HINCRBY', LEDGER, 'finished', 1)
end
if #ARGV > 6 then call('HSET', JOB, 'failures', '0') end
return {'ok', renew()}
"""
)

# Arguments of a lease, ARGV[6] uid, ARGV[7] reason. A game abandoned already stays so: the first answer may have been lost.
ABANDON = """
if lost() then return {'lost'} end
if call('HEXISTS', ABANDONED, ARGV[6]) == 1 then return {'ok'} end
if call('SREM', HELD, ARGV[6]) == 0 then return {'lost', ARGV[6]} end
call('HDEL', OPEN, ARGV[6])
call('HSET', ABANDONED, ARGV[6], ARGV[7])
call('HINCRBY', LEDGER, 'abandoned', 1)
return {'ok'}
"""

# A second call of the owner that ended the job well is one whose first answer was lost.
_ENDED_BY_ME = """
local before = call('HMGET', JOB, 'released', 'attempt', 'owner')
if before[1] == '1' and before[2] == attempt and before[3] == owner then return {'ok'} end
"""

# Arguments of a lease, then uid and GameRecord frame of each changed game. Ends the job.
RELEASE = (
    _ENDED_BY_ME
    + _ALL_HELD
    + """
for i = 6, #ARGV, 2 do call('HSET', OPEN, ARGV[i], ARGV[i + 1]) end
give_back(number)
local state = 'done'
if call('HGET', JOB, 'cancel') == '1' then state = 'cancelled' end
call('HSET', JOB, 'released', '1')
end_job(number, state, '')
return {'ok'}
"""
)

# Arguments of a lease, ARGV[6] result frame. Ends the job with its result.
COMPLETE = (
    _ENDED_BY_ME
    + """
if lost() then return {'lost'} end
call('XADD', RESULTS, '*', 'f', ARGV[6])
give_back(number)
call('HSET', JOB, 'released', '1')
end_job(number, 'done', '')
return {'ok'}
"""
)

# ARGV[3] games inserted, ARGV[4] duplicates dropped, ARGV[5] consumer group, ARGV[6] how many finished
# games broke the rules and are abandoned instead, their uids and reasons, then ids of sample entries to acknowledge and delete.
RECORD_INSERTED = """
if call('EXISTS', RUN) == 0 then return {'missing'} end
call('HSET', LEDGER, 'inserted', ARGV[3], 'duplicates_dropped', ARGV[4])
local refused = tonumber(ARGV[6])
local opened = tonumber(call('HGET', LEDGER, 'opened') or '0')
for i = 7, 5 + 2 * refused, 2 do
  local finished = tonumber(ARGV[i]) <= opened and call('HEXISTS', OPEN, ARGV[i]) == 0
  if finished and call('HSETNX', ABANDONED, ARGV[i], ARGV[i + 1]) == 1 then
    call('HINCRBY', LEDGER, 'abandoned', 1)
    call('HINCRBY', LEDGER, 'finished', -1)
  end
end
local MOST_UNPACKED = 1000 -- arguments of one call: Lua's stack holds some thousand
local first = 7 + 2 * refused
for from = first, #ARGV, MOST_UNPACKED do
  local to = math.min(from + MOST_UNPACKED - 1, #ARGV)
  call('XACK', SAMPLES, ARGV[5], unpack(ARGV, from, to))
  call('XDEL', SAMPLES, unpack(ARGV, from, to))
end
return {'ok'}
"""
