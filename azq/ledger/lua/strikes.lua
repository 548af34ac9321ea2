-- Games that kill their workers: suspected, played in ever smaller company, at last set aside.
--
-- A lease that ends badly (it ran out, or its process died) gives each game that it held a strike; a move that is written down later takes
-- all of a game's strikes away, for a game that kills at some position never gets past it. Which of a thousand games did it?
--
-- - After one strike a game is played as ever: most workers die of other things, and then nothing is slower than before.
-- - From the second on it is a suspect. Suspects wait at the back of the pool; a lease plays `COMPANY` of them and nothing else, so that
--   the search of no other game is lost. Those that move on are free again, at once, and the lease fills up with other games.
-- - From the fourth on it is played alone, and when its lease has died so three times it is abandoned. So a lethal game kills seven workers
--   in all, however many games were played with it, and clears the others of suspicion in about n / 64 short leases.
-- - Suspects are only played while the run is sound: some game moved on since the last lease ended badly. Where everything dies (a broken
--   installation, a host without memory) no game is found guilty; the failures count as the job's, which fail the run. A lease that dies of
--   suspects is not the job's failure. In lockstep there may be nothing but suspects, all in the pool: they are played then, for no other
--   game could ever move.
--
-- An innocent game is set aside only where seven leases in a row die before it moves once. Workers write moves down half a second after
-- they began: in fleets played through with these rules (tests/integration/ledger/test_ledger_strikes.py) none was, among thirteen thousand
-- deaths of workers that lived five to fifteen seconds on average.

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
