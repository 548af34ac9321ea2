-- Runs: created, looked at, changed, forgotten. Most answer missing where there is no such run.

local function missing() return call('EXISTS', RUN) == 0 end

-- Workers refused messages while the run did not run: each job that one was sent of gets the next attempt.
local function send_again()
  for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do
    local job = call('HMGET', JOB_PREFIX .. of, 'state', 'published_ms')
    if job[1] == 'queued' and job[2] ~= '0' then next_attempt(of) end
  end
end

-- In the order of `LedgerCounts`.
local function counted()
  local held = call('HMGET', LEDGER, 'opened', 'finished', 'abandoned', 'inserted', 'duplicates_dropped', 'written_off', unpack(WORK))
  for i = 1, 6 + #WORK do held[i] = held[i] or '0' end
  return {held[1], held[2], text(call('HLEN', OPEN_GAMES)), held[3], held[4], text(call('XLEN', SAMPLES)), unpack(held, 5)}
end

-- `max_waiting`: most games that may wait for the learner; `per_version`: that may be opened for each version of the weights, 0 for any
-- number. Answers ok, conflict, or what a first answer says.
function commands.create(fingerprint, record, max_waiting, per_version, created_ms)
  local before = first_answer(fingerprint)
  if before then return before end
  if not missing() then return {'conflict', call('HGET', RUN, 'state')} end
  call('HSET', RUN, 'record', record, 'state', 'running', 'reason', '', 'active_ms', '0', 'changed_ms', text(now),
    'max_waiting', max_waiting, 'per_version', per_version, 'created_ms', created_ms)
  remember(fingerprint, RUN, '')
  note('run.running', {reason = ''})
  return {'ok'}
end

-- Answers ok where nothing was created under this key yet, or what a first answer says.
function commands.read_once(fingerprint) return first_answer(fingerprint) or {'ok'} end

-- Answers ok, now, and the run's fields.
function commands.read()
  if missing() then return {'missing'} end
  return {'ok', text(now), call('HGETALL', RUN)}
end

-- Answers ok, now, the run's fields, its counts, the jobs queued and leased, and the newest ended jobs that make games back to the
-- last one that did not fail.
function commands.snapshot()
  if missing() then return {'missing'} end
  local jobs, recent = {}, {}
  for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do jobs[#jobs + 1] = view(of) end
  for _, of in ipairs(call('LRANGE', JOBS_DONE, 0, RECENT - 1)) do
    local job = call('HMGET', JOB_PREFIX .. of, 'kind', 'state')
    if MAKES_GAMES[job[1]] then
      recent[#recent + 1] = view(of)
      if job[2] ~= 'failed' then break end
    end
  end
  return {'ok', text(now), call('HGETALL', RUN), counted(), jobs, recent}
end

-- A state set twice changes nothing. `seen_ms`: when the state was set that this was decided from, '0' for any; another answers conflict.
function commands.set_state(state, reason, seen_ms)
  if missing() then return {'missing'} end
  local run = call('HMGET', RUN, 'state', 'active_ms', 'changed_ms', 'pauses')
  if run[1] == state then return {'ok'} end
  local seen = seen_ms == '0' or seen_ms == run[3]
  if not (seen and TRANSITIONS[run[1] .. ' ' .. state]) then return {'conflict', run[1]} end
  local active = tonumber(run[2])
  if run[1] == 'running' then
    active = active + math.max(0, now - tonumber(run[3]))
  else
    local pauses = run[4] and cmsgpack.unpack(run[4]) or {}
    pauses[#pauses + 1] = {tonumber(run[3]), now}
    if #pauses > KEPT_PAUSES then table.remove(pauses, 1) end
    call('HSET', RUN, 'pauses', cmsgpack.pack(pauses))
  end
  call('HSET', RUN, 'state', state, 'reason', reason, 'active_ms', text(active), 'changed_ms', text(now),
    'changed_job', call('HGET', LEDGER, 'job_seq') or '0')
  note('run.' .. state, {reason = reason})
  if state == 'running' then send_again() end
  return {'ok'}
end

-- `before`: the record as it was read, '' for whatever it is. Answers ok, missing or conflict.
function commands.replace_record(before, record, max_waiting, per_version)
  if missing() then return {'missing'} end
  if before ~= '' and call('HGET', RUN, 'record') ~= before then return {'conflict', 'changed meanwhile'} end
  call('HSET', RUN, 'record', record, 'max_waiting', max_waiting, 'per_version', per_version)
  return {'ok'}
end

-- Answers ok and the counts.
function commands.counts()
  if missing() then return {'missing'} end
  return {'ok', unpack(counted())}
end

-- Answers ok, also where there is no such run, or conflict with the state that forbids it: running, leased and its owner, learning and who.
function commands.delete()
  local state = call('HGET', RUN, 'state')
  if state == 'running' then return {'conflict', state} end
  local waiting = call('ZRANGE', JOBS, 0, -1)
  for _, of in ipairs(waiting) do
    local job = call('HMGET', JOB_PREFIX .. of, 'state', 'owner')
    if job[1] == 'leased' then return {'conflict', job[1], job[2]} end
  end
  local place = call('HMGET', LEARNER_LEASE, 'holder', 'until_ms')
  if tonumber(place[2] or '0') > now then return {'conflict', LEARNING, place[1]} end
  for _, numbers in ipairs({waiting, call('LRANGE', JOBS_DONE, 0, -1)}) do
    for _, of in ipairs(numbers) do call('UNLINK', JOB_PREFIX .. of, HELD_PREFIX .. of) end
  end
  for _, name in ipairs(OF_RUN) do call('UNLINK', KEYS[1] .. name) end
  return {'ok'}
end
