-- A run's learner: its place, what it inserted, the weights it announces. Commands take token, holder and life of the place as a lease,
-- and answer missing without a run, superseded and by whom where another learner took the place.
--
-- A server that has no memory left refuses a script whose first write would need some, and lets one go on that has written before. What
-- drains the samples must not wait for memory, so these commands begin with a write that needs none.

local MOST_UNPACKED = 1000 -- arguments of one call: Lua's stack holds some thousand

-- Tokens of a run begin at its creation: a learner of an earlier run of its name has a smaller one.
local function created() return tonumber(call('HGET', RUN, 'created_ms') or '0') end

-- By itself that would need memory; an error says that it is there.
local function make_group(group) redis.pcall('XGROUP', 'CREATE', SAMPLES, group, '0', 'MKSTREAM') end

-- `dead`: a holder that is dead; `group`: of the samples' readers. Answers ok and the new token, or held and by whom.
function commands.take(dead, group)
  if call('EXISTS', RUN) == 0 then return {'missing'} end
  local place = call('HMGET', LEARNER_LEASE, 'holder', 'until_ms')
  if place[1] and tonumber(place[2]) > now and place[1] ~= owner and place[1] ~= dead then return {'held', place[1]} end
  call('HDEL', LEARNER_LEASE, 'until_ms')
  call('HSET', LEARNER_LEASE, 'holder', owner, 'until_ms', text(now + tonumber(life_ms)))
  make_group(group)
  local fresh = text(math.max(tonumber(call('HGET', LEARNER_LEASE, 'token') or '0') + 1, created()))
  call('HSET', LEARNER_LEASE, 'token', fresh)
  return {'ok', fresh}
end

-- What forbids a learner's commit.
local function fenced()
  local place = call('HMGET', LEARNER_LEASE, 'token', 'holder')
  local newer = tonumber(place[1] or '0') - tonumber(token)
  local earlier = token ~= '0' and tonumber(token) < created()
  if earlier or newer > 0 or (newer == 0 and (place[2] or '') ~= owner) then return {'superseded', place[2] or ''} end
  if call('EXISTS', RUN) == 0 then return {'missing'} end
end

local function write_without_memory() call('HDEL', LEARNER_LEASE, '') end

-- A life of 0 gives the place free. With a group makes that again where a server that was rolled back has forgotten it.
function commands.renew(group)
  local refusal = fenced()
  if refusal then return refusal end
  write_without_memory()
  call('HSET', LEARNER_LEASE, 'token', token, 'holder', owner, 'until_ms', life_ms == '0' and '0' or text(now + tonumber(life_ms)))
  if group then make_group(group) end
  return {'ok'}
end

-- Takes then uids and reasons of `refused` finished games that broke the rules and are abandoned instead, then ids of sample entries to
-- acknowledge and delete.
function commands.record_inserted(inserted, duplicates_dropped, group, refused)
  local refusal = fenced()
  if refusal then return refusal end
  write_without_memory()
  local first_refused = FIRST + 4
  local first_id = first_refused + 2 * tonumber(refused)
  for from = first_id, #ARGV, MOST_UNPACKED do
    local to = math.min(from + MOST_UNPACKED - 1, #ARGV)
    call('XACK', SAMPLES, group, unpack(ARGV, from, to))
    call('XDEL', SAMPLES, unpack(ARGV, from, to))
  end
  call('HSET', LEDGER, 'inserted', inserted, 'duplicates_dropped', duplicates_dropped)
  local opened = tonumber(call('HGET', LEDGER, 'opened') or '0')
  for i = first_refused, first_id - 1, 2 do
    local finished = tonumber(ARGV[i]) <= opened and call('HEXISTS', OPEN_GAMES, ARGV[i]) == 0
    if finished and call('HSETNX', ABANDONED, ARGV[i], ARGV[i + 1]) == 1 then
      call('HINCRBY', LEDGER, 'abandoned', 1)
      call('HINCRBY', LEDGER, 'finished', -1)
    end
  end
  return {'ok'}
end

-- `stored`: games in the log; `highest` number there. Takes then first and last of each span of numbers that are neither there nor on
-- their way. Answers ok and how many games were written off.
function commands.restore(stored, highest)
  local refusal = fenced()
  if refusal then return refusal end
  write_without_memory()
  local opened = math.max(tonumber(call('HGET', LEDGER, 'opened') or '0'), tonumber(highest))
  local gone = 0
  for i = FIRST + 2, #ARGV, 2 do
    for game = tonumber(ARGV[i]), tonumber(ARGV[i + 1]) do
      local uid = text(game)
      if call('HEXISTS', OPEN_GAMES, uid) == 0 then gone = gone + call('HSETNX', ABANDONED, uid, WRITTEN_OFF) end
    end
  end
  call('HINCRBY', LEDGER, 'written_off', gone)
  local finished = opened - call('HLEN', OPEN_GAMES) - call('HINCRBY', LEDGER, 'abandoned', gone)
  call('HSET', LEDGER, 'opened', text(opened), 'finished', text(finished), 'inserted', stored)
  note('run.restored', {games = stored, written_off = text(gone), lost = LOST_WITH_IT})
  return {'ok', text(gone)}
end

-- Appends a WeightEvent frame.
function commands.announce_weights(frame)
  local refusal = fenced()
  if refusal then return refusal end
  call('XADD', WEIGHTS, '*', 'f', frame)
  return {'ok'}
end
