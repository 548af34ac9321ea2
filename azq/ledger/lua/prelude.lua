-- What all scripts begin with: the arguments, and the steps that several of them share.
--
-- `azq.ledger.scripts` writes the names of the run's keys and the constants of the rules above this file, as locals, and below the
-- last one calls the command that was asked for; `azq.wire.keys` gives the keys' types. All scripts take the same keys and begin with
-- the same arguments:
--
--   KEYS[1]  prefix of the run's keys, itself no key    KEYS[2]  the answer kept under an idempotency key, where one was sent
--   ARGV[1]  command, by its name in `commands`         ARGV[2]  now in ms, '' for the server's clock
--   ARGV[3]  number of the job, '' where it is about none
--   ARGV[4]  fencing token: attempt of a job, or token of a learner
--   ARGV[5]  its owner                                  ARGV[6]  how long his lease lives, in ms
--   ARGV[7]  and on: what the command itself takes, as its parameters or, where there are many, from ARGV[FIRST]
--
-- All keys of one run share a slot, so a script may make their names from the prefix. A server with users asks for the right to read
-- and write what a script declares, whatever it does with it; undeclared keys are judged by each command, so that a role that may only
-- read the run can still call the scripts that do. Answers begin with a word: `ok`, `lost` (the lease was taken over), `missing` (no
-- such run or job), `conflict` and the state that forbids it, `held` and `superseded` and by which learner.

local ONCE = KEYS[2]
local number, token, owner, life_ms = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local FIRST = 7
local JOB, HELD = JOB_PREFIX .. number, HELD_PREFIX .. number
local call = redis.call
local commands = {}

local function text(value) return string.format('%.0f', value) end

local function clock()
  if ARGV[2] ~= '' then return tonumber(ARGV[2]) end
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now = clock()

-- A RunEvent for those who watch, in a frame without checksum.
local function note(kind, about)
  call('XADD', EVENTS, 'MAXLEN', '~', KEPT_EVENTS, '*', 'f', cmsgpack.pack({UNCHECKED, {'RunEvent', kind, now, about}}))
end

local function note_job(kind, of)
  local job = call('HMGET', JOB_PREFIX .. of, 'kind', 'tag', 'attempt', 'owner', 'error')
  note(kind, {job = of, kind = job[1], tag = job[2], attempt = job[3], owner = job[4], error = job[5]})
end

-- A queued job whose message is lost: one of the attempt before that comes after all is refused.
local function next_attempt(of)
  call('HINCRBY', JOB_PREFIX .. of, 'attempt', 1)
  call('HSET', JOB_PREFIX .. of, 'published_ms', '0')
  note_job('job.requeued', of)
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

-- A job of before specs consists of its spelt fields.
local function view(of)
  local key = JOB_PREFIX .. of
  local job = call('HMGET', key, unpack(JOB_FIELDS))
  return {of, job, not job[1] and call('HMGET', key, unpack(SPELT_FIELDS)) or nil}
end
