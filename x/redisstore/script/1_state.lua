-- One semaphore of the fleet protocol: fleet/protocol.State, in Lua. Every call
-- is atomic, and runs on this server's clock. What is read is kept in locals and
-- tables, what is new is written in bulk at the end (5_write.lua): a thing that
-- came and went in one call was never written.
--
-- It is a library of functions, which a server of version 7 keeps: the locals
-- below outlive a call, and start() makes them new. An older server runs the
-- same text as a script, and makes all of it anew each time.
--
-- keys[1] is the semaphore and the hash tag of all it has:
--   {prefix:name}             hash: for the script: config, state, sessions (s…), leases (L…) and tickets (T…);
--                             the rest is the configuration, for people
--   {prefix:name}:sessions    sorted set: "number instance" by deadline, in microseconds of the semaphore's clock
--   {prefix:name}:leases      sorted set: who holds what, by Seq
--   {prefix:name}:line        sorted set: who waits for what, in order
--   {prefix:name}:blocks      hash: which sessions have blocks, and were told that others wait
--   {prefix:name}:spent       list: "until weight" of what a rate has granted
--   {prefix:name}:grave       string: what a semaphore of this name begins after
-- keys[2] is the server: which run of which process it is, see meet.
-- args is the name, the prefix of channels, the request, and the fields of the
-- leases that it releases, in order.
--
-- Numbers are doubles, exact up to 2^53; Seqs are microseconds since 1970 and
-- more, 2^51. Lua would print them as 1.8e+15: always use integer(). What is
-- packed is made of such doubles (d) and of strings with their length (I4c0);
-- struct is several times as fast as cmsgpack, which is faster than JSON.

local BASE, SERVER, NAME, CHANNEL, REQUEST
local SESSIONS, LEASES, LINE, BLOCKS, SPENT, GRAVE

local SECOND, HOUR, WEEK = 1e6, 3600e6, 7 * 24 * 3600e6
local NEVER = 9007199254740992
local RATE = 1
local REAP_AT_ONCE = 16
local LEAP = 1e9 -- by how much Seqs jump after a failover: more than can have been granted and lost

-- What becomes of tickets and leases. In a table, since Lua knows no more than
-- 200 locals at a time.
local IS = { GRANTED = 1, FULL = 2, QUEUE_FULL = 3, TOO_LARGE = 4, DRAINING = 5, TIMED_OUT = 6, REVOKED = 7, INVALID = 8 }

-- Lua's own and Redis's functions. When a library is loaded there are none yet,
-- so the first call finds them.
local call, pack, read
local floor, max, min, format, match, sub, find, byte

local function findFunctions()
  call, pack, read = redis.call, struct.pack, struct.unpack
  floor, max, min = math.floor, math.max, math.min
  format, match, sub, find, byte = string.format, string.match, string.sub, string.find, string.byte
end

local function integer(n)
  if n < 1e14 and n > -1e14 then return n end
  return format('%.0f', n)
end

local seqText, timeText, numberText
do

-- texts makes a function that has numbers as text. To format one takes as long as
-- a small command; but Seqs come after each other, and so do times: most of their
-- digits are those of the last one. Weights are small.
local function texts()
  local high, most
  local small, rest = {}, {} -- '0' to '999', and '000' to '999'
  return function(n)
    if n < 1000 then
      if n < 0 then return format('%.0f', n) end
      if not small[n] then small[n] = format('%.0f', n) end
      return small[n]
    end
    local thousands = floor(n / 1000)
    if thousands ~= high then high, most = thousands, format('%.0f', thousands) end
    local low = n - thousands * 1000
    if not rest[low] then rest[low] = format('%03d', low) end
    return most .. rest[low]
  end
end

seqText, timeText, numberText = texts(), texts(), texts()

end

-- number is the reverse, for those that are mostly small.
local number
do

local smallNumbers = {}

function number(text)
  local n = smallNumbers[text]
  if not n then
    n = tonumber(text)
    if n and n < 1000 then smallNumbers[text] = n end
  end
  return n
end

end

-- The configuration, and its packed form as stored.
local kind, capacity, whole, ramp, maxWaiters, ttl, window, draining, version, protocol
local configured, lifetime

-- The state. What protocol.State calls the same is the same. First what almost
-- every call changes.
local clock, last, renewals, lastSeq, inUse
local soonest                         -- no session's deadline is earlier
local leaseCount                      -- how many there are
local lowest                          -- the lowest Seq that is live, or 0 if that is not known
local lastSession, sessionCount
local wanted, waiting, arrivals       -- by those in line, how many they are, and how many ever came
local hinted                          -- which of them was told to watch the time
local rampFrom, rampAt
local untold, told                    -- how many sessions have blocks, and were not told that others wait, or were
local epoch, hold                     -- the server's, see meet, and until when nothing is granted
local kept                            -- when expiry was last put off

-- What belongs to this call alone.
local now
local budget, more                    -- dead sessions that may still be ended in this call; there were more of them
local sessions, woken                 -- those that were looked at, by number; those that have news
local storedLeases, storedWaiting     -- how many are in the sorted sets
local goneFields, newFields           -- of the hash
local owners                          -- of what is in the sorted sets, if that had to be looked for

local CONFIG = '<dddddddddd'
local HOT, HOT_SIZE, COLD = '<dddddddd', 8 * 8, '<ddddddddddddd' -- the state
local cold -- what was last unpacked of it, or packed; nil if that is not what there is now

local function loadConfig(packed)
  if packed == configured then return end
  configured = packed
  kind, capacity, whole, ramp, maxWaiters, ttl, window, draining, version, protocol = read(CONFIG, packed)
  lifetime = format('%.0f', floor((WEEK + 2 * ttl) / 1000))
end

local meet
do

-- The run of this process is remembered from call to call: it is the same for as
-- long as this memory lasts. (So are names of keys, and the configuration and the
-- server that were last unpacked.)
local run
local metText, metRun, metAt, metLoss

-- meet finds out which run of which server this is, and since when. A server
-- that is started again or promoted may not know all that was acknowledged. Who
-- calls says which one it has seen last, so that a server that has forgotten
-- everything is told so; if nobody who comes has seen one, it may have forgotten
-- whatever was before it was started. The answer is the microsecond at which this
-- one was met first, or started, and whether anybody may trust in what was lost: 0
-- if not, 1 if so, 2 if an older primary may still be answering, and 3 if nothing is
-- known of what was before the start.
local UNTOLD = 3
local LONG_UP = 24 * 3600 -- seconds, after which nobody trusts in what was before

function meet(seen, used)
  if not run then
    local info = call('INFO', 'server')
    local at = find(info, 'run_id:', 1, true) + 7
    run = sub(info, at, at + 39)
  end
  local known = call('GET', SERVER)
  if known then
    if known ~= metText then
      metText, metRun, metAt, metLoss = known, sub(known, 1, 40), tonumber(sub(known, 42, -3)), tonumber(sub(known, -1))
    end
    if metRun == run and (metLoss == 1 or metLoss == 2 or seen == 0 or seen == metAt) then return metAt, metLoss end
  end
  local loss, since = find(call('INFO', 'replication'), 'second_repl_offset:-1', 1, true) and 1 or 2, now
  if not (known or used or seen > 0) and loss == 1 then
    local up = tonumber(match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
    since, loss = now - up * SECOND, up > LONG_UP and 0 or UNTOLD
  end
  call('SET', SERVER, run .. ' ' .. format('%.0f', since) .. ' ' .. loss)
  return since, loss
end

end

local cutOff
do

local checked = -1 -- when the replicas were last looked at

-- cutOff reports whether this server believes in replicas that are silent. With
-- min-replicas-to-write it refuses to write once it has noticed, but it looks no
-- more than once a second; and one that was asleep for a minute serves whoever
-- asks when it wakes up before it looks again, though another one may have been
-- promoted. INFO tells the lag as it is, and how many replicas were good when it
-- last looked.
function cutOff(promotion)
  if now >= checked and now - checked < SECOND then return false end
  local info = call('INFO', 'replication')
  local believed, good = match(info, 'min_slaves_good_slaves:(%d+)'), 0
  for lag in string.gmatch(info, 'state=online,offset=%d+,lag=(%d+)') do
    if lag * SECOND <= max(promotion - 2 * SECOND, SECOND) then good = good + 1 end
  end
  if believed and good < tonumber(believed) then return true end
  checked = now
  return false
end

end

-- quarantine is for how long nothing is granted on a server that was met at some
-- time. Holders trust for two thirds of a TTL after they were last answered; the
-- clock below may run ahead by a third if the server's steps. A primary that was
-- cut off goes on answering for as long as the promotion takes.
local function quarantine(met, loss, promotion)
  if loss == 0 then return 0 end
  local bound = loss == 2 and promotion or 0
  return max(0, ttl + bound - max(0, now - met))
end

-- ticked is where the semaphore's own clock is now: it follows the server's by a
-- sixth of the TTL at a time at most, and never back.
local function ticked() return clock + min(max(now - last, 0), floor(ttl / 6)) end

-- load unpacks what was read of the semaphore, and reports whether there is one.
local function load(config, state, seen, promotion)
  local met, loss = meet(seen, config)
  if not config then return false, met, loss end
  loadConfig(config)
  clock, last, renewals, lastSeq, inUse, soonest, leaseCount, lowest = read(HOT, state)
  local rest = sub(state, HOT_SIZE + 1)
  if rest ~= cold then
    lastSession, sessionCount, wanted, waiting, arrivals, hinted, rampFrom, rampAt, untold, told, epoch, hold, kept = read(COLD, rest)
    cold = rest
  end
  storedLeases, storedWaiting = leaseCount, waiting
  if epoch ~= met then
    cold = nil
    epoch = met
    -- From now on, to where advance will move the clock. Numbers may have been given
    -- that are not known here, so they are passed over. (A session whose last sign
    -- of life was lost is refused, see continues, so nobody needs more time.)
    hold = max(hold, ticked() + quarantine(met, max(loss, 1), promotion))
    lastSeq, lastSession = max(lastSeq, now) + LEAP, max(lastSession, now) + LEAP
  end
  return true, met, loss
end

-- make is the state of a new semaphore. Its clock begins with the server's, so
-- that deadlines read as times.
local function make(packed, met, loss, promotion)
  loadConfig(packed)
  local grave = tonumber(call('GET', GRAVE) or 0)
  if loss > 0 then grave = max(grave, now + LEAP) end
  clock, last, lastSeq, lastSession, renewals, inUse, wanted = now, now, max(grave, now), max(grave, now), 0, 0, 0
  waiting, arrivals, hinted, rampFrom, rampAt, soonest = 0, 0, 0, capacity, now, NEVER
  sessionCount, leaseCount, lowest, untold, told, storedLeases, storedWaiting = 0, 0, 0, 0, 0, 0, 0
  epoch, hold, kept = met, clock + quarantine(met, loss, promotion), 0
  call('DEL', SESSIONS, LEASES, LINE, BLOCKS, SPENT)
end

-- keep has a key expire long after the last use, unless the semaphore was
-- configured by an administrator.
local function keep(key)
  if version == 1 then call('PEXPIRE', key, lifetime) end
end

-- effective is how much may be in use now.
local function effective()
  if ramp == 0 or rampFrom >= capacity then return capacity end
  local passed = max(last - rampAt, 0)
  local seconds, rest = floor(passed / SECOND), passed % SECOND
  if seconds > floor((capacity - rampFrom) / ramp) then return capacity end
  -- rest * ramp / SECOND, in parts that are exact
  local risen = seconds * ramp + rest * floor(ramp / SECOND) + floor(rest * (ramp % SECOND) / SECOND)
  return min(capacity, rampFrom + risen)
end

local function fits(weight) return clock >= hold and weight <= effective() - inUse end

local advance
do

-- shorten is for a clock that stepped back: nothing is spent for longer than a
-- window, and no rise takes longer than it would from now on.
local function shorten()
  rampFrom, rampAt = effective(), now
  if kind ~= RATE then return end
  local longest = now + window
  for i = 0, call('LLEN', SPENT) - 1, 500 do
    for j, spent in ipairs(call('LRANGE', SPENT, i, i + 499)) do
      local till, weight = match(spent, '^(%d+) (%d+)')
      if tonumber(till) > longest then call('LSET', SPENT, i + j - 1, integer(longest) .. ' ' .. weight) end
    end
  end
end

-- expire gives back what of a rate is older than the window.
local function expire()
  while kind == RATE do
    local some = call('LRANGE', SPENT, 0, 63)
    local gone = 0
    for _, spent in ipairs(some) do
      local till, weight = match(spent, '^(%d+) (%d+)')
      if tonumber(till) > last then break end
      inUse = inUse - tonumber(weight)
      gone = gone + 1
    end
    if gone > 0 then call('LTRIM', SPENT, gone, -1) end
    if gone < 64 then return end
  end
end

-- advance brings the semaphore's own clock up to date.
function advance()
  if now < last then shorten() end
  clock = ticked()
  last = now
  expire()
end

end
