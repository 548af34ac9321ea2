"""Scripts that create, read and change runs."""

from __future__ import annotations

from azq.ledger.rules.runs import LEARNING
from azq.ledger.types import RECENT
from azq.wire import keys

# ARGV[3] RunRecord frame, ARGV[4] fingerprint where the request has a key, ARGV[5] most games that may wait for the learner.
# Answers ok, conflict, or what a first answer says.
CREATE_RUN = """
local before = first_answer(ARGV[4])
if before then return before end
if call('EXISTS', RUN) == 1 then return {'conflict', call('HGET', RUN, 'state')} end
call('HSET', RUN, 'record', ARGV[3], 'state', 'running', 'reason', '', 'active_ms', '0', 'changed_ms', text(now),
  'max_waiting', ARGV[5])
remember(ARGV[4], RUN, '')
note('run.running', {reason = ''})
return {'ok'}
"""

# ARGV[3] fingerprint. Answers ok where nothing was created under this key yet, or what a first answer says.
READ_ONCE = "return first_answer(ARGV[3]) or {'ok'}"

# Answers ok, now, and the run's fields.
READ_RUN = """
if call('EXISTS', RUN) == 0 then return {'missing'} end
return {'ok', text(now), call('HGETALL', RUN)}
"""

# Answers ok, now, the run's fields, its counts, the jobs queued and leased, and the newest ended self-play jobs back to the
# last one that did not fail.
LOOK = """
if call('EXISTS', RUN) == 0 then return {'missing'} end
local jobs, recent = {}, {}
for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do jobs[#jobs + 1] = view(of) end
for _, of in ipairs(call('LRANGE', DONE, 0, RECENT - 1)) do
  local job = call('HMGET', JOB_PREFIX .. of, 'kind', 'state')
  if job[1] == 'selfplay' then
    recent[#recent + 1] = view(of)
    if job[2] ~= 'failed' then break end
  end
end
return {'ok', text(now), call('HGETALL', RUN), counted(), jobs, recent}
""".replace("RECENT", str(RECENT))

# ARGV[3] new state, ARGV[4] reason. A state set twice changes nothing.
SET_RUN_STATE = """
local allowed = {running = 'paused finished failed', paused = 'running finished failed', finished = 'running', failed = 'running'}
if call('EXISTS', RUN) == 0 then return {'missing'} end
local run = call('HMGET', RUN, 'state', 'active_ms', 'changed_ms')
if run[1] == ARGV[3] then return {'ok'} end
if not string.find(allowed[run[1]], ARGV[3], 1, true) then return {'conflict', run[1]} end
local active = tonumber(run[2])
if run[1] == 'running' then active = active + math.max(0, now - tonumber(run[3])) end
call('HSET', RUN, 'state', ARGV[3], 'reason', ARGV[4], 'active_ms', text(active), 'changed_ms', text(now))
note('run.' .. ARGV[3], {reason = ARGV[4]})
return {'ok'}
"""

# ARGV[3] RunRecord frame as it was read ('': whatever it is), ARGV[4] as it shall be, ARGV[5] most games that may wait for the
# learner. Answers ok, missing or conflict.
REPLACE_RECORD = """
if call('EXISTS', RUN) == 0 then return {'missing'} end
if ARGV[3] ~= '' and call('HGET', RUN, 'record') ~= ARGV[3] then return {'conflict', 'changed meanwhile'} end
call('HSET', RUN, 'record', ARGV[4], 'max_waiting', ARGV[5])
return {'ok'}
"""

# Answers ok, then opened, finished, open, abandoned, inserted, samples in the stream, duplicates_dropped, written_off.
COUNTS = "if call('EXISTS', RUN) == 0 then return {'missing'} end return {'ok', unpack(counted())}"

# Answers ok, also where there is no such run, or conflict with the state that forbids it: running, leased and its owner, learning and who.
DELETE_RUN = """
local state = call('HGET', RUN, 'state')
if state == 'running' then return {'conflict', state} end
local waiting = call('ZRANGE', JOBS, 0, -1)
for _, of in ipairs(waiting) do
  local job = call('HMGET', JOB_PREFIX .. of, 'state', 'owner')
  if job[1] == 'leased' then return {'conflict', job[1], job[2]} end
end
local place = call('HMGET', LEARNER, 'holder', 'until_ms')
if tonumber(place[2] or '0') > now then return {'conflict', 'LEARNING', place[1]} end
for _, numbers in ipairs({waiting, call('LRANGE', DONE, 0, -1)}) do
  for _, of in ipairs(numbers) do call('UNLINK', JOB_PREFIX .. of, HELD_PREFIX .. of) end
end
for _, name in ipairs({OF_RUN}) do call('UNLINK', KEYS[1] .. name) end
return {'ok'}
""".replace("LEARNING", LEARNING).replace("OF_RUN", ", ".join(f"'{key('').removeprefix(keys.run_prefix(''))}'" for key in keys.OF_RUN))
