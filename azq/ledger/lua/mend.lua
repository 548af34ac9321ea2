-- Mends what no rule leaves behind: a worker's rights also allow nonsense in the keys of a ledger. What is wrong is put aside or
-- dropped, and made again from what is right; `open` and the sets of held games say which games lie in the pool.

local found = {}

local function note_wrong(what) found[what] = true end

local function is_count(value) return #value < 16 and value:match('^%d+$') ~= nil end

local function put_aside(name)
  call('RENAME', KEYS[1] .. name, ASIDE .. name)
  call('EXPIRE', ASIDE .. name, MENDED_LIFE_S)
end

local function mend_type(name, wanted)
  local key, type = KEYS[1] .. name, call('TYPE', KEYS[1] .. name).ok
  if type == 'none' or type == wanted then return end
  put_aside(name)
  note_wrong('WRONGTYPE of ' .. key .. ', a ' .. type .. ' in place of a ' .. wanted)
end

local function mend_counts(key)
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if not is_count(fields[i + 1]) then
      call('HDEL', key, fields[i])
      note_wrong(key .. ' held what is no number')
    end
  end
end

-- The jobs queued and leased; what is none of azq's is put aside.
local function active_jobs()
  local active = {}
  for _, of in ipairs(call('ZRANGE', JOBS, 0, -1)) do
    local name, sound = string.sub(JOB_PREFIX, #KEYS[1] + 1) .. of, is_count(of)
    if sound then
      mend_type(name, 'hash')
      local job = call('HMGET', JOB_PREFIX .. of, 'state', unpack(JOB_COUNTS))
      job[#JOB_COUNTS + 1] = job[#JOB_COUNTS + 1] or '0' -- failures, of which an older azq writes none
      sound = job[1] == 'queued' or job[1] == 'leased'
      for i = 2, #JOB_COUNTS + 1 do sound = sound and job[i] and is_count(job[i]) end
    end
    if sound then
      active[#active + 1] = of
      mend_type(string.sub(HELD_PREFIX, #KEYS[1] + 1) .. of, 'set')
    else
      call('ZREM', JOBS, of)
      if call('EXISTS', JOB_PREFIX .. of) == 1 then put_aside(name) end
      call('DEL', HELD_PREFIX .. of)
      note_wrong(JOBS .. ' named what is no job')
    end
  end
  return active
end

local function mend_ended()
  local ended, names = call('LRANGE', JOBS_DONE, 0, -1), {}
  for i, of in ipairs(ended) do names[i] = JOB_PREFIX .. of end
  if #ended == 0 or call('EXISTS', unpack(names)) == #ended then return end
  for i, of in ipairs(ended) do
    if call('EXISTS', names[i]) == 0 then call('LREM', JOBS_DONE, 0, of) end
  end
  note_wrong(JOBS_DONE .. ' named what is no job')
end

local function count(name) return tonumber(call('HGET', LEDGER, name) or '0') end

local function raise(name, least)
  if count(name) >= least then return end
  call('HSET', LEDGER, name, text(least))
  note_wrong(LEDGER .. ' counted too few in ' .. name)
end

-- No number is given to a game, or to a job, twice; a count of opened games that may be right is believed. A server that forgot its last
-- commands may hold games open that are inserted: then its sum is right, and they finish again.
local function mend_numbers(active)
  for _, of in ipairs(active) do raise('job_seq', tonumber(of)) end
  local sum = count('finished') + count('abandoned') + call('HLEN', OPEN_GAMES)
  if count('finished') < count('inserted') and count('opened') ~= sum then raise('finished', count('inserted') + call('XLEN', SAMPLES)) end
  if count('abandoned') == 0 then raise('abandoned', call('HLEN', ABANDONED)) end
  local least = count('finished') + count('abandoned')
  if call('HEXISTS', LEDGER, 'opened') == 1 and count('opened') >= least then return end
  least = least + call('HLEN', OPEN_GAMES)
  for _, uid in ipairs(call('HKEYS', OPEN_GAMES)) do least = math.max(least, is_count(uid) and tonumber(uid) or 0) end
  raise('opened', least)
end

local function mend_pool(active)
  local lying = call('LLEN', POOL)
  for _, of in ipairs(active) do lying = lying + call('SCARD', HELD_PREFIX .. of) end
  if lying == call('HLEN', OPEN_GAMES) then return end
  local free, opened, pool, left = {}, count('opened'), {}, {}
  for _, uid in ipairs(call('HKEYS', OPEN_GAMES)) do
    free[uid] = is_count(uid) and tonumber(uid) <= opened or nil
    if not free[uid] then call('HDEL', OPEN_GAMES, uid) end
  end
  for _, of in ipairs(active) do
    for _, uid in ipairs(call('SMEMBERS', HELD_PREFIX .. of)) do
      if not free[uid] then call('SREM', HELD_PREFIX .. of, uid) end
      free[uid] = nil
    end
  end
  for _, uid in ipairs(call('LRANGE', POOL, 0, -1)) do
    if free[uid] then pool[#pool + 1] = uid end
    free[uid] = nil
  end
  for uid in pairs(free) do left[#left + 1] = uid end
  table.sort(left, function(a, b) return tonumber(a) > tonumber(b) end)
  call('DEL', POOL)
  for _, uid in ipairs(pool) do call('RPUSH', POOL, uid) end
  for _, uid in ipairs(left) do call('LPUSH', POOL, uid) end
  note_wrong(POOL .. ' did not hold the open games without a lease')
end

-- Answers ok and what was wrong.
function commands.mend()
  if call('EXISTS', RUN) == 0 then return {'missing'} end
  for name, type in pairs(TYPES) do mend_type(name, type) end
  mend_counts(LEDGER)
  mend_counts(STRIKES)
  local active, answer = active_jobs(), {'ok'}
  mend_ended()
  mend_numbers(active)
  mend_pool(active)
  raise('opened', count('finished') + count('abandoned') + call('HLEN', OPEN_GAMES))
  if not next(found) then return answer end
  local known = cmsgpack.unpack(call('GET', MENDED) or cmsgpack.pack({}))
  for what in pairs(found) do
    answer[#answer + 1], known[what] = what, now
    note('ledger.mended', {reason = what})
  end
  call('SET', MENDED, cmsgpack.pack(known), 'EX', MENDED_LIFE_S)
  return answer
end
