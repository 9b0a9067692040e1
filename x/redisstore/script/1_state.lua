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
--   {prefix:name}             hash: for the script: config, the state under the name of its layout (see STATE),
--                             sessions (s…), leases (L…) and tickets (T…);
--                             the rest is the configuration, for people
--   {prefix:name}:sessions    sorted set: "number instance" by deadline, in microseconds of the semaphore's clock
--   {prefix:name}:leases      sorted set: who holds what, by Seq
--   {prefix:name}:queue       sorted set: who waits for what, in order
--   {prefix:name}:blocks      hash: which sessions have blocks, and were told that others wait
--   {prefix:name}:spent       list: "until weight" of what a rate has granted
--   {prefix:name}:tombstone     string: what a semaphore of this name begins after
-- keys[2] is the server: which run of which process it is, see meet.
--   server:used               string: when a semaphore was last used, to the hour, and the last gap, see noteUse
-- args is the name, the prefix of channels, the request, and the fields of the
-- leases that it releases, in order.
--
-- Numbers are doubles, exact up to 2^53; Seqs are microseconds since 1970 and
-- more, 2^51. Lua would print them as 1.8e+15: always use integer(). What is
-- packed is made of such doubles (d) and of strings with their length (I4c0);
-- struct is several times as fast as cmsgpack, which is faster than JSON.

local scripted -- this runs as a script, which remembers nothing from call to call

local BASE, SERVER, NAME, CHANNEL, REQUEST
local SESSIONS, LEASES, QUEUE, BLOCKS, SPENT, TOMBSTONE

local SECOND, HOUR, WEEK = 1e6, 3600e6, 7 * 24 * 3600e6
local NEVER = 9007199254740992
local RATE = 1
local REAP_AT_ONCE = 16

-- STATE names the field of the state after the layout of the records in the hash.
-- A release that changes the layout changes the name: its program rejects what
-- others have written, and theirs fail on what it has written, instead of reading
-- it wrongly.
local STATE = 'data1'

-- What becomes of tickets and leases. In a table, since Lua knows no more than
-- 200 locals at a time.
local IS = { GRANTED = 1, FULL = 2, QUEUE_FULL = 3, TOO_LARGE = 4, DRAINING = 5, TIMED_OUT = 6, REVOKED = 7, INVALID = 8, UNDECIDED = 9 }

-- Lua's own and Redis's functions. When a library is loaded there are none yet,
-- so the first call finds them.
local call, pack, read
local floor, max, min, format, match, sub

local function findFunctions()
  call, pack, read = redis.call, struct.pack, struct.unpack
  floor, max, min = math.floor, math.max, math.min
  format, match, sub = string.format, string.match, string.sub
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
local kind, capacity, whole, ramp, maxWaiters, ttl, window, numbered, draining, version, protocol
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
local leastLag, stepped               -- see undecided: no session was renewed while the clock lagged less behind the
                                      -- server's; where the clock was when the server's last stepped back

-- What belongs to this call alone.
local now
local budget, more                    -- dead sessions that may still be ended in this call; there were more of them
local sessions, woken                 -- those that were looked at, by number; those that have news
local storedLeases, storedWaiting     -- how many are in the sorted sets
local goneFields, newFields           -- of the hash
local owners                          -- of what is in the sorted sets, if that had to be looked for

local HOT, COLD = '<dddddddd', '<ddddddddddddddd' -- the state
local cold -- what was last unpacked of it, or packed; nil if that is not what there is now

local function loadConfig(packed)
  if packed == configured then return end
  configured = packed
  kind, capacity, whole, ramp, maxWaiters, ttl, window, numbered, draining, version, protocol = read('<ddddddddddd', packed)
  lifetime = format('%.0f', floor((WEEK + 2 * ttl) / 1000))
end

-- ticked is where the semaphore's own clock is now: it follows the server's by a
-- sixth of the TTL at a time at most, and never back.
local function ticked() return clock + min(max(now - last, 0), floor(ttl / 6)) end

local met -- the epoch, which names the meeting of this run of the server, see meet
local cutOff, load, make, unreleased
do

-- What else meet has found: since when a TTL is counted; and 2 if the server was a
-- replica, so that an older primary may still be answering, or else 1.
local metSince, metLoss
local reign -- the replication ID, which is another one each time a server becomes a primary; see cutOff

-- The ID of this process is remembered from call to call: it is the same for as
-- long as this memory lasts. (So are names of keys, and the configuration and the
-- server that were last unpacked.)
local process
local run, runReign -- of the server: the process, and since when it is a primary
local metText, metRun
local seenKeys = {} -- the server keys that this process has had

-- Commands after which a key may be missing that was there, and those after which
-- nothing can be known of the commands before.
local LOSING = {
  flushall = true, flushdb = true, swapdb = true, restore = true, debug = true, replicaof = true, slaveof = true,
  ['config|resetstat'] = true,
}
local RUNNING = { fcall = true, fcall_ro = true, eval = true, eval_ro = true, evalsha = true, evalsha_ro = true }

-- untouched reports whether this process cannot have lost the server key: it has not
-- had one of this name, and has run no command that loses keys. A program that runs as
-- a script does not know the former. Therefore it counts scripts, except in a cluster,
-- where every slot has a server key. (Calls that failed do not count: the first call of
-- a program fails, and loads it.)
local function untouched()
  if seenKeys[SERVER] or not string.find(call('INFO', 'stats'), 'evicted_keys:0', 1, true) then return false end
  local alone = not string.find(call('INFO', 'cluster'), 'cluster_enabled:1', 1, true)
  for name, calls, rest in string.gmatch(call('INFO', 'commandstats'), 'cmdstat_([^:]+):calls=(%d+)([^\r\n]*)') do
    local loses = LOSING[name] or scripted and alone and RUNNING[name]
    if loses and calls - (match(rest, 'failed_calls=(%d+)') or 0) > 0 then return false end
  end
  return true
end

-- Keys of an unused semaphore expire. So do those of a held one if the server's clock
-- steps far enough: then nothing was used for a long time on that clock. gap is the time
-- at which that was last found: semaphores that are missing may have been lost then.
local gap
local noted = {} -- when a use was last noted, by server key
local LONG = WEEK / 2

-- noteUse notes that the server is used, once an hour, and finds gaps.
local function noteUse()
  local at, key = noted[SERVER], SERVER .. ':used'
  if at and now >= at.used and now - at.used < HOUR then
    gap = at.gap
    return
  end
  local used, found = match(call('GET', key) or '', '^(%d+) (%d+)$')
  used, gap = tonumber(used or at and at.used or now), min(tonumber(found or 0), now)
  if now - used > LONG then gap = now end
  if not found or now < used or now - used >= HOUR then
    used = now
    call('SET', key, format('%.0f', used) .. ' ' .. format('%.0f', gap))
  end
  noted[SERVER] = { used = used, gap = gap }
end

-- meet finds out which run of which server this is. The server key says which one
-- has answered last. If that was another one, or the key is missing, a state may have
-- been lost that holders trust in: nothing is granted for a TTL. It is counted from
-- now, or, if this process cannot have lost the key itself, from its start. The start
-- is known to the second, and taken to be later rather than earlier.
--
-- seen is the epoch that the client has seen last. One that is later than the
-- key's was lost, too: the data are older than the key's run.
local function meet(seen, used)
  process = process or match(call('INFO', 'server'), 'run_id:(%x+)')
  if runReign ~= reign then run, runReign = process .. reign, reign end
  noteUse()
  local known = call('GET', SERVER)
  if known and known ~= metText then
    metText = known
    local since, number, loss
    metRun, since, number, loss = match(known, '^(%x+) (%d+) (%d+) ([12])$')
    metSince, met, metLoss = tonumber(since or 0), tonumber(number or 0), tonumber(loss or 0)
    seenKeys[SERVER] = true
  end
  if known and metRun == run and seen <= met then return end
  met = max(now, seen + 1, known and met + 1 or 0)
  metSince, metLoss = now, string.find(call('INFO', 'replication'), 'second_repl_offset:-1', 1, true) and 1 or 2
  if not (known or used or seen > 0) and metLoss == 1 and untouched() then
    local up = tonumber(match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
    metSince = max(0, now - max(0, up - 1) * SECOND)
  end
  metText, metRun, seenKeys[SERVER] = run .. ' ' .. format('%.0f', metSince) .. ' ' .. format('%.0f', met) .. ' ' .. metLoss, run, true
  call('SET', SERVER, metText)
end

local checked = -1 -- when the replicas were last looked at

-- cutOff reports whether this server believes in replicas that are silent, and must not
-- answer; and notes since when it is a primary. With min-replicas-to-write it refuses
-- to write once it has noticed, but it looks no more than once a second; and one that
-- was asleep for a minute serves whoever asks when it wakes up before it looks again,
-- though another one may have been promoted. INFO tells the lag as it is, and how many
-- replicas were good when it last looked.
function cutOff(promotion)
  if now >= checked and now - checked < SECOND then return false end
  local info = call('INFO', 'replication')
  reign = match(info, 'master_replid:(%x+)') or ''
  local believed, good = match(info, 'min_slaves_good_slaves:(%d+)'), 0
  for lag in string.gmatch(info, 'state=online,offset=%d+,lag=(%d+)') do
    if lag * SECOND <= max(promotion - 2 * SECOND, SECOND) then good = good + 1 end
  end
  if believed and good < tonumber(believed) then return true end
  checked = now
  return false
end

-- Seqs and sessions start a thousand seconds ahead of the server's clock wherever
-- an earlier state may have been lost. They count up more slowly than the clock, so
-- that a later start is higher than all that was granted before, unless the clock has
-- stepped back by more than that. What is stored may be as far ahead already. It is
-- not moved on: two starts from the same snapshot would be the same.
local LEAP = 1e9

-- quarantine is for how long nothing is granted after a loss at some time. Holders trust
-- for two thirds of a TTL after they were last answered; the clock below may run ahead
-- by a third if the server's steps.
local function quarantine(since, bound) return max(0, ttl + bound - max(0, now - since)) end

-- metQuarantine is that of the server that was met. A primary that was cut off goes on
-- answering for as long as the promotion takes.
local function metQuarantine(promotion) return quarantine(metSince, metLoss == 2 and promotion or 0) end

-- unreleased reports whether the semaphore has a form that no released version has
-- written.
local UNRELEASED, OTHER_RELEASE = 'SEMALAYOUT unreleased', 'SEMALAYOUT another release'
function unreleased() return call('HEXISTS', BASE, 'state') + call('HEXISTS', BASE, 'state2') > 0 end

-- load unpacks what was read of the semaphore, and reports whether there is one. If
-- it cannot be read there is an error as well.
function load(config, state, seen, promotion)
  meet(seen, config)
  if not config then return false end
  if not state then return false, redis.error_reply(unreleased() and UNRELEASED or OTHER_RELEASE) end
  loadConfig(config)
  clock, last, renewals, lastSeq, inUse, soonest, leaseCount, lowest = read(HOT, state)
  local rest = sub(state, 8 * 8 + 1)
  if rest ~= cold then
    lastSession, sessionCount, wanted, waiting, arrivals, hinted, rampFrom, rampAt, untold, told, epoch, hold, kept, leastLag, stepped = read(COLD, rest)
    cold = rest
  end
  storedLeases, storedWaiting = leaseCount, waiting
  if epoch ~= met then
    cold = nil
    epoch = met
    -- From now on, to where advance will move the clock. (A session whose last sign
    -- of life was lost is refused, see continues, so nobody needs more time.)
    hold = max(hold, ticked() + metQuarantine(promotion))
    lastSeq, lastSession = max(lastSeq, now + LEAP), max(lastSession, now + LEAP)
  end
  return true
end

-- make is the state of a new semaphore. Its clock begins with the server's, so
-- that deadlines read as times. There may have been one of its name that was lost.
function make(packed, promotion)
  loadConfig(packed)
  local first = max(tonumber(call('GET', TOMBSTONE) or 0), now + LEAP)
  clock, last, lastSeq, lastSession, renewals, inUse, wanted = now, now, first, first, 0, 0, 0
  waiting, arrivals, hinted, rampFrom, rampAt, soonest = 0, 0, 0, capacity, now, NEVER
  sessionCount, leaseCount, lowest, untold, told, storedLeases, storedWaiting = 0, 0, 0, 0, 0, 0, 0
  epoch, hold, kept, leastLag, stepped = met, clock + max(metQuarantine(promotion), quarantine(gap, 0)), 0, 0, 0
  call('DEL', SESSIONS, LEASES, QUEUE, BLOCKS, SPENT)
end

end

-- leaveTombstone leaves a key behind: Seqs and sessions of a semaphore of this name begin after a
-- number, for so long that no clock steps back behind it.
local function leaveTombstone(number) call('SET', TOMBSTONE, format('%.0f', number), 'PX', format('%.0f', 4 * WEEK / 1000)) end

local noteHighest, remember
do

-- believable reports whether a client may have seen a Seq. One that is too far ahead
-- of the clock would exhaust the numbers.
local MAX_LEAD = 1e14
local function believable(seen) return seen <= max(now, 0) + MAX_LEAD end

-- noteHighest makes new Seqs higher than one that a client has seen.
function noteHighest(seen)
  if seen > lastSeq and believable(seen) then lastSeq = seen end
end

-- remember is noteHighest for a semaphore that is missing, and may have been lost.
function remember(seen)
  if seen > now and believable(seen) and seen > tonumber(call('GET', TOMBSTONE) or 0) then leaveTombstone(seen) end
end

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
      local seq, till, rest = match(spent, '^(%d+) (%d+) (.*)$')
      if tonumber(till) > longest then call('LSET', SPENT, i + j - 1, seq .. ' ' .. integer(longest) .. ' ' .. rest) end
    end
  end
end

-- expire gives back what of a rate is older than the window.
local function expire()
  while kind == RATE do
    local some = call('LRANGE', SPENT, 0, 63)
    local gone = 0
    for _, spent in ipairs(some) do
      local till, weight = match(spent, '^%d+ (%d+) (%d+)')
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
  local back = now < last
  if back then shorten() end
  clock = ticked()
  last = now
  if back then leastLag, stepped = min(leastLag, last - clock), clock end
  expire()
end

end
