"""Scripts of open games: adopted, journaled, finished, abandoned, given back."""

from __future__ import annotations

# Arguments of a lease, ARGV[6] most games. Answers ok, then uid and record of each: from the pool first, then new ones.
ADOPT = """
if lost() then return {'lost'} end
local games = {'ok'}
if not may_work(call('HGET', JOB, 'kind')) then return games end
local function hand_out(uid, frame)
  call('SADD', HELD, uid)
  games[#games + 1] = uid
  games[#games + 1] = frame
end
local most = tonumber(ARGV[6])
local suspicion = call('EXISTS', STRIKES) == 1
if suspicion then
  if is_testing() then return games end
  if call('EXISTS', HELD) == 0 and call('HGET', LEDGER, 'sound') == '1' then
    local uid, strikes
    for have = 0, most - 1 do
      uid, strikes = next_suspect(strikes, have)
      if not uid then break end
      hand_out(uid, call('HGET', OPEN, uid))
    end
    if #games > 1 then return games end
  end
end
for _ = 1, most do
  local uid
  if not suspicion or strikes_of(call('LINDEX', POOL, 0) or '') < SUSPECT then uid = call('LPOP', POOL) end
  if uid then
    hand_out(uid, call('HGET', OPEN, uid))
  else
    uid = text(call('HINCRBY', LEDGER, 'opened', 1))
    call('HSET', OPEN, uid, '')
    hand_out(uid, '')
  end
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
moved_on()
for i = 6, #ARGV, 2 do call('HSET', OPEN, ARGV[i], ARGV[i + 1]) end
return {'ok', renew()}
"""
)

# Arguments of a lease, then uid and SampleEvent frame of each game. Closes the records and hands over the samples.
FINISH = (
    _ALL_HELD
    + """
moved_on()
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
call('HDEL', STRIKES, ARGV[6])
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
moved_on()
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
