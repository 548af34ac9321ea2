"""The ledger's rules on the server: one Lua script each, so that every change is atomic. `azq.ledger.rules` says the same in Python.

All scripts take the same keys and begin with the same arguments; `azq.wire.keys` gives the keys' types.

    KEYS[1] run   KEYS[2] ledger   KEYS[3] open   KEYS[4] pool   KEYS[5] abandoned   KEYS[6] jobs   KEYS[7] jobs_done
    KEYS[8] samples   KEYS[9] results   KEYS[10] stall   KEYS[11] prefix of job hashes   KEYS[12] prefix of held sets
    KEYS[13] events   KEYS[14] answer kept under an idempotency key                                 (where one was sent)
    ARGV[1] now in ms, or '' for the server's clock
    ARGV[2] number of the job, '' where the script is not about one
    ARGV[3] attempt           ARGV[4] owner           ARGV[5] length of the lease in ms         (scripts of a lease)

Keys of single jobs are a prefix and a number: all keys of one run share a slot. Answers begin with a word: `ok`, `lost` (the lease
was taken over), `missing` (no such run or job), `conflict` and the state that forbids it.
"""

from __future__ import annotations

from azq.ledger.answers import JOB_FIELDS
from azq.ledger.rules import KEPT_ENDED_JOBS
from azq.ledger.said import SAID

_PREAMBLE = """
local RUN, LEDGER, OPEN, POOL, ABANDONED, JOBS, DONE = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local SAMPLES, RESULTS, STALL, JOB_PREFIX, HELD_PREFIX, EVENTS, ONCE = KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local number, attempt, owner = ARGV[2], ARGV[3], ARGV[4]
local JOB, HELD = JOB_PREFIX .. (number or ''), HELD_PREFIX .. (number or '')
local call = redis.call

local function text(value) return string.format('%.0f', value) end

local function clock()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now = clock()
"""

_CHANGES = """
local function lost()
  local job = call('HMGET', JOB, 'state', 'attempt', 'owner')
  return not (job[1] == 'leased' and job[2] == attempt and job[3] == owner)
end

-- Evaluations of a finished run still count; everything else needs a running one.
local function may_work(kind)
  local state = call('HGET', RUN, 'state')
  return state == 'running' or (state == 'finished' and kind == 'eval')
end

-- Games that wait for a learner which is away would fill the broker.
local function full()
  local most = call('HGET', RUN, 'max_waiting')
  return most and call('XLEN', SAMPLES) >= tonumber(most)
end

local function renew()
  call('HSET', JOB, 'lease_until_ms', text(now + tonumber(ARGV[5])))
  local job = call('HMGET', JOB, 'kind', 'cancel')
  if job[2] == '1' or not may_work(job[1]) then return 'release' end
  if job[1] == 'selfplay' and (call('EXISTS', STALL) == 1 or full()) then return 'stall' end
  return 'go_on'
end

local function counted()
  local held = call('HMGET', LEDGER, 'opened', 'finished', 'abandoned', 'inserted', 'duplicates_dropped')
  for i = 1, 5 do held[i] = held[i] or '0' end
  return {held[1], held[2], text(call('HLEN', OPEN)), held[3], held[4], text(call('XLEN', SAMPLES)), held[5]}
end

local function view(of) return {of, call('HMGET', JOB_PREFIX .. of, JOB_FIELDS)} end

-- Held games go to the front of the pool, the oldest foremost, so that old games end first.
local function give_back(of)
  local uids = call('SMEMBERS', HELD_PREFIX .. of)
  table.sort(uids, function(a, b) return tonumber(a) > tonumber(b) end)
  for _, uid in ipairs(uids) do call('LPUSH', POOL, uid) end
  call('DEL', HELD_PREFIX .. of)
end

local function end_job(of, state, problem)
  call('HSET', JOB_PREFIX .. of, 'state', state, 'ended_ms', text(now), 'error', problem)
  note_job('job.' .. state, of)
  call('ZREM', JOBS, of)
  call('LPUSH', DONE, of)
  while call('LLEN', DONE) > KEPT do
    local old = call('RPOP', DONE)
    call('DEL', JOB_PREFIX .. old, HELD_PREFIX .. old)
  end
end

-- A lease that ended badly: the games go back; the job gets another attempt while it has some left.
local function end_lease(of, problem, max_attempts)
  give_back(of)
  local key = JOB_PREFIX .. of
  local failures = call('HINCRBY', key, 'failures', 1)
  call('HSET', key, 'lease_until_ms', '0')
  if call('HGET', key, 'cancel') == '1' then
    end_job(of, 'cancelled', problem)
  elseif failures >= max_attempts then
    end_job(of, 'failed', problem)
  else
    call('HINCRBY', key, 'attempt', 1)
    call('HSET', key, 'state', 'queued', 'published_ms', '0', 'claimed_ms', '0', 'error', problem)
    note_job('job.requeued', of)
  end
end
""".replace("KEPT", str(KEPT_ENDED_JOBS)).replace("JOB_FIELDS", ", ".join(f"'{name}'" for name in JOB_FIELDS))

# ARGV[3] kind, ARGV[4] tag, ARGV[5] priority, ARGV[6] games, ARGV[7] slice_s, ARGV[8] payload, ARGV[9] fingerprint where the
# request has a key. Answers ok and the job, missing, or what a first answer says.
ENQUEUE = """
local before = first_answer(ARGV[9])
if before then return before end
if call('EXISTS', RUN) == 0 then return {'missing'} end
local fresh = text(call('HINCRBY', LEDGER, 'job_seq', 1))
call('HSET', JOB_PREFIX .. fresh, 'kind', ARGV[3], 'tag', ARGV[4], 'priority', ARGV[5], 'games', ARGV[6], 'slice_s', ARGV[7],
  'payload', ARGV[8], 'state', 'queued', 'attempt', '1', 'failures', '0', 'owner', '', 'lease_until_ms', '0', 'published_ms', '0',
  'created_ms', text(now), 'claimed_ms', '0', 'ended_ms', '0', 'error', '')
call('ZADD', JOBS, text(now), fresh)
remember(ARGV[9], JOB_PREFIX .. fresh, fresh)
note_job('job.queued', fresh)
return {'ok', view(fresh)}
"""

# ARGV[3] attempt. A mark for an attempt that is over changes nothing.
MARK_PUBLISHED = """
if call('ZSCORE', JOBS, number) and call('HGET', JOB, 'attempt') == attempt then
  call('HSET', JOB, 'published_ms', text(now))
  call('ZADD', JOBS, text(now), number)
end
return {'ok'}
"""

# ARGV[3] number below which to look ('': all), ARGV[4] '1' for ended jobs too, ARGV[5] most. Answers ok and jobs, highest number first.
JOBS_BELOW = """
local numbers = call('ZRANGE', JOBS, 0, -1)
if ARGV[4] == '1' then for _, of in ipairs(call('LRANGE', DONE, 0, -1)) do numbers[#numbers + 1] = of end end
table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)
local below, most, jobs = tonumber(ARGV[3]) or math.huge, tonumber(ARGV[5]), {}
for _, of in ipairs(numbers) do
  if #jobs == most then break end
  if tonumber(of) < below then jobs[#jobs + 1] = view(of) end
end
return {'ok', jobs}
"""

# Answers ok and the job.
READ_JOB = """
if call('EXISTS', JOB) == 0 then return {'missing'} end
return {'ok', view(number)}
"""

# ARGV[3] '1' for ended jobs too, ARGV[4] most of each kind. Answers ok, the jobs queued and leased, then the newest ended ones.
READ_JOBS = """
local last = tonumber(ARGV[4]) - 1
local jobs = {}
for _, of in ipairs(call('ZRANGE', JOBS, 0, last)) do jobs[#jobs + 1] = view(of) end
if ARGV[3] == '1' then
  for _, of in ipairs(call('LRANGE', DONE, 0, last)) do jobs[#jobs + 1] = view(of) end
end
return {'ok', jobs}
"""

# A queued job ends at once, a leased one when its worker hears of it.
CANCEL = """
local state = call('HGET', JOB, 'state')
if not state then return {'missing'} end
if state == 'queued' then
  end_job(number, 'cancelled', '')
elseif state == 'leased' then
  call('HSET', JOB, 'cancel', '1')
else
  return {'conflict', state}
end
return {'ok', view(number)}
"""

# Arguments of a lease. Answers ok and the job, or refused.
CLAIM = """
local job = call('HMGET', JOB, 'state', 'attempt', 'kind')
if job[1] ~= 'queued' or job[2] ~= attempt or not may_work(job[3]) then return {'refused'} end
call('HSET', JOB, 'state', 'leased', 'owner', owner, 'claimed_ms', text(now), 'lease_until_ms', text(now + tonumber(ARGV[5])))
note_job('job.leased', number)
return {'ok', view(number)}
"""

# Arguments of a lease. Answers ok and a directive, or lost.
RENEW = """
if lost() then return {'lost'} end
return {'ok', renew()}
"""

# ARGV[3] most failed attempts. Ends every lease whose time is over; answers ok and those jobs.
EXPIRE = """
local over = {}
for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do
  local job = call('HMGET', JOB_PREFIX .. of, 'state', 'lease_until_ms', 'owner')
  if job[1] == 'leased' and tonumber(job[2]) <= now then
    end_lease(of, 'the lease of ' .. job[3] .. ' ran out', tonumber(ARGV[3]))
    over[#over + 1] = view(of)
  end
end
return {'ok', over}
"""

# ARGV[3] attempt whose message was lost. Answers ok and the job under its next attempt.
REQUEUE = """
local job = call('HMGET', JOB, 'state', 'attempt')
if not job[1] then return {'missing'} end
if job[1] ~= 'queued' then return {'conflict', job[1]} end
if job[2] ~= attempt then return {'conflict', 'queued under attempt ' .. job[2]} end
call('HINCRBY', JOB, 'attempt', 1)
call('HSET', JOB, 'published_ms', '0')
note_job('job.requeued', number)
return {'ok', view(number)}
"""

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

# Arguments of a lease, ARGV[6] what went wrong, ARGV[7] most failed attempts.
FAIL = """
if lost() then return {'lost'} end
end_lease(number, ARGV[6], tonumber(ARGV[7]))
return {'ok'}
"""

# Answers ok, then opened, finished, open, abandoned, inserted, samples in the stream, duplicates_dropped.
COUNTS = "if call('EXISTS', RUN) == 0 then return {'missing'} end return {'ok', unpack(counted())}"

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


def source(body: str) -> str:
    """A script as the server gets it."""
    return _PREAMBLE + SAID + _CHANGES + body
