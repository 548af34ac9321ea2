-- Jobs: queued, leased, ended. Commands that are about one job take its number and, where they say so, an attempt or a lease.

-- Takes then names and values of the job's own fields. Answers ok and the job, missing, or what a first answer says.
function commands.enqueue(fingerprint)
  local before = first_answer(fingerprint)
  if before then return before end
  if call('EXISTS', RUN) == 0 then return {'missing'} end
  local fresh = text(call('HINCRBY', LEDGER, 'job_seq', 1))
  call('HSET', JOB_PREFIX .. fresh, unpack(ARGV, FIRST + 1))
  call('HSET', JOB_PREFIX .. fresh, 'state', 'queued', 'attempt', '1', 'failures', '0', 'owner', '', 'lease_until_ms', '0',
    'published_ms', '0', 'created_ms', text(now), 'claimed_ms', '0', 'ended_ms', '0', 'error', '')
  call('ZADD', JOBS, text(now), fresh)
  remember(fingerprint, JOB_PREFIX .. fresh, fresh)
  note_job('job.queued', fresh)
  return {'ok', view(fresh)}
end

-- Takes an attempt. A mark for one that is over changes nothing.
function commands.mark_published()
  if call('ZSCORE', JOBS, number) and call('HGET', JOB, 'attempt') == token then
    call('HSET', JOB, 'published_ms', text(now))
    call('ZADD', JOBS, text(now), number)
  end
  return {'ok'}
end

-- `below`: number below which to look, '' for all; `ended`: '1' for ended jobs too. Answers ok and jobs, highest number first.
function commands.below(below, ended, most)
  local numbers = call('ZRANGE', JOBS, 0, -1)
  if ended == '1' then for _, of in ipairs(call('LRANGE', JOBS_DONE, 0, -1)) do numbers[#numbers + 1] = of end end
  table.sort(numbers, function(a, b) return tonumber(a) > tonumber(b) end)
  local limit, jobs = tonumber(below) or math.huge, {}
  for _, of in ipairs(numbers) do
    if #jobs == tonumber(most) then break end
    if tonumber(of) < limit then jobs[#jobs + 1] = view(of) end
  end
  return {'ok', jobs}
end

-- Answers ok and the job.
function commands.read()
  if call('EXISTS', JOB) == 0 then return {'missing'} end
  return {'ok', view(number)}
end

-- A queued job ends at once, a leased one when its worker hears of it.
function commands.cancel()
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
end

-- Takes a lease. Answers ok and the job, or refused.
function commands.claim()
  local job = call('HMGET', JOB, 'state', 'attempt', 'kind')
  if job[1] ~= 'queued' or job[2] ~= token or not may_work(job[3]) then return {'refused'} end
  call('HSET', JOB, 'state', 'leased', 'owner', owner, 'claimed_ms', text(now), 'lease_until_ms', text(now + tonumber(life_ms)))
  note_job('job.leased', number)
  return {'ok', view(number)}
end

-- Takes a lease. Answers ok and a directive, or lost.
function commands.renew()
  if lost() then return {'lost'} end
  return {'ok', renew()}
end

-- Takes what this attempt has done so far of each of `WORK`; what was counted of it before is not counted again.
function commands.count_work()
  if lost() then return {'lost'} end
  local before = call('HMGET', JOB, 'worked', unpack(WORK))
  for i, name in ipairs(WORK) do
    local known = before[1] == token and tonumber(before[i + 1]) or 0
    local more = math.max(0, tonumber(ARGV[FIRST + i - 1]) - known)
    call('HSET', JOB, 'worked', token, name, text(known + more))
    call('HINCRBY', LEDGER, name, text(more))
  end
  return {'ok'}
end

-- Ends every lease whose time is over; answers ok and those jobs.
function commands.expire(max_attempts)
  local over = {}
  for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do
    local job = call('HMGET', JOB_PREFIX .. of, 'state', 'lease_until_ms', 'owner')
    if job[1] == 'leased' and tonumber(job[2]) <= now then
      end_lease(of, 'the lease of ' .. job[3] .. ' ran out', tonumber(max_attempts))
      over[#over + 1] = view(of)
    end
  end
  return {'ok', over}
end

-- Takes the attempt whose message was lost. Answers ok and the job under its next attempt.
function commands.requeue()
  local job = call('HMGET', JOB, 'state', 'attempt')
  if not job[1] then return {'missing'} end
  if job[1] ~= 'queued' then return {'conflict', job[1]} end
  if job[2] ~= token then return {'conflict', 'queued under attempt ' .. job[2]} end
  next_attempt(number)
  return {'ok', view(number)}
end

-- Takes a lease that ends badly.
function commands.fail(problem, max_attempts)
  if lost() then return {'lost'} end
  end_lease(number, problem, tonumber(max_attempts))
  return {'ok'}
end
