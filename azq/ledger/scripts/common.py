"""What all scripts begin with: the names of a run's keys, the arguments, and the steps that several of them share."""

from __future__ import annotations

from azq.ledger.answers import JOB_FIELDS
from azq.ledger.rules import KEPT_ENDED_JOBS
from azq.ledger.scripts.said import SAID
from azq.ledger.scripts.strikes import SUSPICION
from azq.wire import keys

_NAMES = {
    "RUN": keys.run,
    "LEDGER": keys.ledger,
    "OPEN": keys.open_games,
    "POOL": keys.pool,
    "ABANDONED": keys.abandoned,
    "STRIKES": keys.strikes,
    "JOBS": keys.jobs,
    "DONE": keys.jobs_done,
    "SAMPLES": keys.samples,
    "WEIGHTS": keys.weights,
    "RESULTS": keys.results,
    "STALL": keys.stall,
    "EVENTS": keys.events,
    "LEARNER": keys.learner_lease,
    "JOB_PREFIX": keys.job_prefix,
    "HELD_PREFIX": keys.held_prefix,
}

_KEYS = "".join(f"local {name} = KEYS[1] .. '{key('').removeprefix(keys.run_prefix(''))}'\n" for name, key in _NAMES.items())

_PREAMBLE = """
local ONCE = KEYS[2]
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
  local held = call('HMGET', LEDGER, 'opened', 'finished', 'abandoned', 'inserted', 'duplicates_dropped', 'written_off')
  for i = 1, 6 do held[i] = held[i] or '0' end
  return {held[1], held[2], text(call('HLEN', OPEN)), held[3], held[4], text(call('XLEN', SAMPLES)), held[5], held[6]}
end

local function view(of) return {of, call('HMGET', JOB_PREFIX .. of, JOB_FIELDS)} end

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
  call('LPUSH', DONE, of)
  while call('LLEN', DONE) > KEPT do
    local old = call('RPOP', DONE)
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
""".replace("KEPT", str(KEPT_ENDED_JOBS)).replace("JOB_FIELDS", ", ".join(f"'{name}'" for name in JOB_FIELDS))


def source(body: str) -> str:
    """A script as the server gets it."""
    return _KEYS + _PREAMBLE + SAID + SUSPICION + _CHANGES + body
