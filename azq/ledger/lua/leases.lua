-- Leases: whether one still stands, how it is renewed, how it ends.

local function lost()
  local job = call('HMGET', JOB, 'state', 'attempt', 'owner')
  return not (job[1] == 'leased' and job[2] == token and job[3] == owner)
end

-- Evaluations of a finished run still count; what makes games needs a running one.
local function may_work(kind)
  local state = call('HGET', RUN, 'state')
  return state == 'running' or (state == 'finished' and not MAKES_GAMES[kind])
end

-- Games that wait for a learner which is away would fill the broker.
local function full()
  local most = call('HGET', RUN, 'max_waiting')
  return most and call('XLEN', SAMPLES) >= tonumber(most)
end

local function renew()
  call('HSET', JOB, 'lease_until_ms', text(now + tonumber(life_ms)))
  local job = call('HMGET', JOB, 'kind', 'cancel')
  if job[2] == '1' or not may_work(job[1]) then return 'release' end
  if MAKES_GAMES[job[1]] and (call('EXISTS', STALL) == 1 or full()) then return 'stall' end
  return 'go_on'
end

-- Held games go to the front of the pool, the oldest foremost, so that old games end first; suspects to its back.
local function give_back(of)
  local uids = call('SMEMBERS', HELD_PREFIX .. of)
  local suspicion = call('EXISTS', STRIKES) == 1
  table.sort(uids, function(a, b) return tonumber(a) > tonumber(b) end)
  for _, uid in ipairs(uids) do
    call(suspicion and strikes_of(uid) >= SUSPECT and 'RPUSH' or 'LPUSH', POOL, uid)
  end
  call('DEL', HELD_PREFIX .. of)
end

local function end_job(of, state, problem)
  call('HSET', JOB_PREFIX .. of, 'state', state, 'ended_ms', text(now), 'error', problem)
  note_job('job.' .. state, of)
  call('ZREM', JOBS, of)
  call('LPUSH', JOBS_DONE, of)
  while call('LLEN', JOBS_DONE) > KEPT_ENDED_JOBS do
    local old = call('RPOP', JOBS_DONE)
    call('DEL', JOB_PREFIX .. old, HELD_PREFIX .. old)
  end
end

-- A lease that ended badly: the games go back; the job gets another attempt while it has some left.
local function end_lease(of, problem, max_attempts)
  local key = JOB_PREFIX .. of
  local failures = call('HINCRBY', key, 'failures', strike(of) and 0 or 1)
  give_back(of)
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
