-- What scripts do about games that kill whoever plays them; `azq.ledger.rules.strikes` says why.

local function strikes_of(uid) return tonumber(call('HGET', STRIKES, uid) or '0') end

-- Gives the games of a lease that ended badly a strike each and abandons the guilty; true where the games were suspects before.
local function strike(of)
  local tested, uids = false, call('SMEMBERS', HELD_PREFIX .. of)
  if #uids > 0 then call('HDEL', LEDGER, 'sound') end
  for _, uid in ipairs(uids) do
    local strikes = call('HINCRBY', STRIKES, uid, 1)
    tested = tested or strikes > SUSPECT
    if strikes >= SET_ASIDE then
      call('HDEL', STRIKES, uid)
      call('HDEL', OPEN_GAMES, uid)
      call('SREM', HELD_PREFIX .. of, uid)
      call('HSET', ABANDONED, uid, SET_ASIDE_REASON)
      call('HINCRBY', LEDGER, 'abandoned', 1)
      note('game.set_aside', {game = uid, reason = SET_ASIDE_REASON})
    end
  end
  return tested
end

-- The games named in a lease's arguments up to the last of them moved: they are no suspects, and show that the run is sound.
local function moved_on(last)
  if last < FIRST or call('EXISTS', STRIKES) == 0 then return end
  for i = FIRST, last, 2 do call('HDEL', STRIKES, ARGV[i]) end
  call('HSET', LEDGER, 'sound', '1')
end

-- The lease plays suspects that have not moved; it never holds more of them than the largest company.
local function is_testing()
  if call('SCARD', HELD) > MOST_COMPANY then return false end
  for _, uid in ipairs(call('SMEMBERS', HELD)) do
    if strikes_of(uid) >= SUSPECT then return true end
  end
  return false
end

-- No other game could move: none may be opened, and the open ones lie in the pool, suspects all.
local function nothing_but_suspects(openable)
  return openable < 1 and call('LLEN', POOL) == call('HLEN', OPEN_GAMES) and strikes_of(call('LINDEX', POOL, 0) or '') >= SUSPECT
end

-- The next suspect for a lease that holds `have` of `strikes` each; nil where there is none for it.
local function next_suspect(strikes, have)
  local uid = call('LINDEX', POOL, -1)
  if not uid then return nil end
  local its = strikes_of(uid)
  if its < SUSPECT or (strikes and its ~= strikes) or have >= (COMPANY[its] or 1) then return nil end
  call('RPOP', POOL)
  return uid, its
end
