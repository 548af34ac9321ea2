"""Scripts of jobs: queued, leased, ended."""

from __future__ import annotations

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

# Arguments of a lease, ARGV[6] what went wrong, ARGV[7] most failed attempts.
FAIL = """
if lost() then return {'lost'} end
end_lease(number, ARGV[6], tonumber(ARGV[7]))
return {'ok'}
"""
