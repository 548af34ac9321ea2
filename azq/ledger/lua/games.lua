-- Open games: adopted, journaled, finished, abandoned, given back. All commands take a lease, and answer lost where it is lost.

-- How many games may be opened: in lockstep none before the weights that it is to be played with.
local function openable()
  local per_version = tonumber(call('HGET', RUN, 'per_version') or '0')
  if per_version == 0 then return math.huge end
  return per_version * call('XLEN', WEIGHTS) - tonumber(call('HGET', LEDGER, 'opened') or '0')
end

-- Appends uid and record of each to `games`, at most `most`: from the pool first, then new ones.
local function adopted(games, most)
  local before = #games
  if most == 0 or not may_work(call('HGET', JOB, 'kind')) then return games end
  local function hand_out(uid, frame)
    if not frame then return end -- no open game's: a worker with rights may write nonsense there
    call('SADD', HELD, uid)
    games[#games + 1] = uid
    games[#games + 1] = frame
  end
  local suspicion, fresh = call('EXISTS', STRIKES) == 1, openable()
  if suspicion then
    if is_testing() then return games end
    if call('EXISTS', HELD) == 0 and (call('HGET', LEDGER, 'sound') == '1' or nothing_but_suspects(fresh)) then
      local uid, strikes
      for have = 0, most - 1 do
        uid, strikes = next_suspect(strikes, have)
        if not uid then break end
        hand_out(uid, call('HGET', OPEN_GAMES, uid))
      end
      if #games > before then return games end
    end
  end
  for _ = 1, most do
    local uid
    if not suspicion or strikes_of(call('LINDEX', POOL, 0) or '') < SUSPECT then uid = call('LPOP', POOL) end
    if uid then
      hand_out(uid, call('HGET', OPEN_GAMES, uid))
    elseif fresh < 1 then
      break
    else
      fresh = fresh - 1
      uid = text(call('HINCRBY', LEDGER, 'opened', 1))
      call('HSET', OPEN_GAMES, uid, '')
      hand_out(uid, '')
    end
  end
  return games
end

function commands.adopt(most)
  if lost() then return {'lost'} end
  return adopted({'ok'}, tonumber(most))
end

-- Takes uids. Those that lie in the pool are adopted, whatever lies before them there.
function commands.adopt_named()
  if lost() then return {'lost'} end
  local games = {'ok'}
  if not may_work(call('HGET', JOB, 'kind')) then return games end
  for i = FIRST, #ARGV do
    if call('LREM', POOL, 1, ARGV[i]) == 1 then
      call('SADD', HELD, ARGV[i])
      games[#games + 1] = ARGV[i]
      games[#games + 1] = call('HGET', OPEN_GAMES, ARGV[i]) or ''
    end
  end
  return games
end

-- What forbids a commit about the games named in the arguments; nothing is written unless the lease holds all of them.
local function not_held(last)
  if lost() then return {'lost'} end
  for i = FIRST, last, 2 do
    if call('SISMEMBER', HELD, ARGV[i]) == 0 then return {'lost', ARGV[i]} end
  end
end

local function keep_records()
  moved_on(#ARGV)
  for i = FIRST, #ARGV, 2 do call('HSET', OPEN_GAMES, ARGV[i], ARGV[i + 1]) end
end

-- Takes uid and GameRecord frame of each game.
function commands.journal()
  local refusal = not_held(#ARGV)
  if refusal then return refusal end
  keep_records()
  return {'ok', renew()}
end

-- Takes uid and SampleEvent frame of each game, and last how many to adopt in their place. Closes the records and hands over the samples.
function commands.replace()
  local last = #ARGV - 1
  call('LLEN', POOL) -- fails where that is none, before anything is written: a retry commits all of it
  local refusal = not_held(last)
  if refusal then return refusal end
  moved_on(last)
  for i = FIRST, last, 2 do
    call('HDEL', OPEN_GAMES, ARGV[i])
    call('SREM', HELD, ARGV[i])
    call('XADD', SAMPLES, '*', 'f', ARGV[i + 1])
    call('HINCRBY', LEDGER, 'finished', 1)
  end
  if last >= FIRST then call('HSET', JOB, 'failures', '0') end
  return adopted({'ok', renew()}, tonumber(ARGV[#ARGV]))
end

-- A game abandoned already stays so: the first answer may have been lost.
function commands.abandon(uid, reason)
  if lost() then return {'lost'} end
  if call('HEXISTS', ABANDONED, uid) == 1 then return {'ok'} end
  if call('SREM', HELD, uid) == 0 then return {'lost', uid} end
  call('HDEL', OPEN_GAMES, uid)
  call('HDEL', STRIKES, uid)
  call('HSET', ABANDONED, uid, reason)
  call('HINCRBY', LEDGER, 'abandoned', 1)
  return {'ok'}
end

-- A second call of the owner that ended the job is one whose first answer was lost.
local function ended_by_me()
  local before = call('HMGET', JOB, 'released', 'attempt', 'owner')
  return before[1] == '1' and before[2] == token and before[3] == owner
end

local function end_by_owner(state, problem)
  give_back(number)
  call('HSET', JOB, 'released', '1')
  end_job(number, state, problem)
  return {'ok'}
end

-- Takes uid and GameRecord frame of each changed game. Ends the job.
function commands.release()
  if ended_by_me() then return {'ok'} end
  local refusal = not_held(#ARGV)
  if refusal then return refusal end
  keep_records()
  return end_by_owner(call('HGET', JOB, 'cancel') == '1' and 'cancelled' or 'done', '')
end

-- Ends the job with its result, which may say what the problem was.
function commands.complete(result, problem)
  if ended_by_me() then return {'ok'} end
  if lost() then return {'lost'} end
  call('XADD', RESULTS, '*', 'f', result)
  return end_by_owner(problem == '' and 'done' or 'failed', problem)
end
