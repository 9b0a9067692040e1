-- One semaphore of the fleet protocol: fleet/protocol.State, in Lua. Every call is
-- atomic and uses the server's clock. A call reads into locals and tables, and writes
-- all changes in bulk at the end (5_write.lua). A lease or ticket that is created and
-- removed within one call is never written.
--
-- A server from version 7 on loads this as a library of functions. The locals below then
-- outlive a call, and start() resets them. An older server runs the same text as a
-- script, which creates everything again in each call.
--
-- keys[1] is the hash of the semaphore, and the hash tag of all its keys:
--   {prefix:name}             hash: config, the state (see STATE and COLD), sessions (s… and c…), leases (L…), tickets (T…)
--                             and slots, packed for the script; and the configuration as text
--   {prefix:name}:sessions    sorted set: "number instance" by deadline, in microseconds of the semaphore's clock
--   {prefix:name}:leases      sorted set: leases by Seq, as text
--   {prefix:name}:queue       sorted set: tickets in order, as text
--   {prefix:name}:blocks      hash: sessions with blocks; recalled if they were notified that other sessions wait
--   {prefix:name}:spent       list: grants of a rate, "seq until weight session"
--   {prefix:name}:tombstone   string: the number after which a semaphore of this name starts
-- keys[2] is the server key: the run of the process that used it last, see identify.
--   server:used               string: when a semaphore was last used, to the hour, and the last gap, see noteUse
-- Requests that change the index of names contain its key.
-- args are the name, the prefix of channels, the request, and the hash fields of the
-- leases that it releases, in order.
--
-- Numbers are doubles, exact up to 2^53. Seqs are at least the microseconds since 1970,
-- about 2^51. Lua would print them as 1.8e+15: always use integer(). Packed values are
-- doubles (d) and strings preceded by their length (I4c0). struct is several times as
-- fast as cmsgpack, which is faster than JSON.

local scripted -- true in a script, whose locals do not outlive a call

local BASE, SERVER, NAME, CHANNEL, REQUEST
local SESSIONS, LEASES, QUEUE, BLOCKS, SPENT, TOMBSTONE

local SECOND, HOUR, WEEK = 1e6, 3600e6, 7 * 24 * 3600e6
local NEVER = 9007199254740992
local RATE = 1

-- STATE is the hash field of the state. Its name contains the data version of all records
-- in the hash. A release that changes a layout changes the name, so that its program
-- rejects the records of older ones, and they reject its records.
local STATE = 'data2'

-- Kinds of results. They are in a table, since Lua allows at most 200 locals at a time.
local IS = { GRANTED = 1, FULL = 2, QUEUE_FULL = 3, TOO_LARGE = 4, DRAINING = 5, TIMED_OUT = 6, REVOKED = 7, INVALID = 8, UNDECIDED = 9 }

-- Functions of Lua and Redis. They do not exist yet while a library is loaded, so the
-- first call looks them up.
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

-- texts returns a function that formats numbers. Formatting one takes as long as a small
-- command. Seqs and times are close to those before them, so the function caches all but
-- the last three digits. Weights are small, so it caches small numbers whole.
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

-- number parses a number. It caches small numbers, which are the most frequent.
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

-- The configuration; configured is its packed form, as stored.
local kind, capacity, whole, ramp, maxWaiters, ttl, window, numbered, draining, version, protocol
local configured, lifetime

-- The state. Names of protocol.State mean the same here. Almost every call changes the
-- first of them.
local clock, last, renewals, lastSeq, inUse
local soonest                         -- lower bound of the deadlines of all sessions
local leaseCount                      -- number of leases
local lowest                          -- lowest live Seq, or 0 if unknown
local lastSession, sessionCount
local wanted, waiting, arrivals       -- sum of the least weights of the queued tickets; their number; number of tickets ever queued
local notifiedFirst                   -- arrival number of the ticket whose session was last notified to watch the time
local rampFrom, rampAt
local unnotified, notified            -- number of sessions with blocks that were not, or were, notified that other sessions wait
local epoch, hold                     -- epoch of the server, see identify; clock time until which nothing is granted
local kept                            -- when the expiry of the keys was last extended
local leastLag, stepped               -- see undecided: lower bound of the lag behind the server's clock at each session's
                                      -- last renewal; the clock when the server's last stepped back

-- State of this call only.
local now
local budget, more                    -- number of expired sessions that this call may still end; whether there were more
local sessions, woken                 -- sessions that were read, by number; sessions to notify
local storedLeases, storedWaiting     -- number of members in the sorted sets
local goneFields, newFields           -- fields of the hash to remove and to write
local owners                          -- members of the sorted sets by session, if they had to be read

-- The state has two parts. STATE contains the fields that almost every call changes, in the
-- format HOT. The hash field cold contains the others, in the format COLD. stamp is a number that
-- changes with the configuration and with cold, which are cached by it, see cache.keep.
local HOT, COLD = '<ddddddddd', '<ddddddddddddddd'
local stamp
local cold                            -- packed form of the COLD fields; nil if a field may have changed since

local function loadConfig(packed)
  if packed == configured then return end
  configured = packed
  kind, capacity, whole, ramp, maxWaiters, ttl, window, numbered, draining, version, protocol = read('<ddddddddddd', packed)
  lifetime = format('%.0f', floor((WEEK + 2 * ttl) / 1000))
end

-- What few calls change is cached, since Redis hashes every byte of every string that Lua creates:
-- reading or writing it would take a tenth of a call. A stamp identifies what is cached: it is the time
-- of a change, or one more than the stamp before. Another process that has changed something meanwhile
-- has also written the server key, see identify, which then discards everything.
local part -- of the semaphore of this call: stamp, config, cold, and rests of sessions, see rests.keep; nil if it is new
local cache = {} -- its functions, since Lua allows at most 200 locals at a time
do

local parts, cached = {}, 0 -- by key; number of semaphores and sessions
local MAX_CACHED = 4000

function cache.discard() parts, cached = {}, 0 end

-- note bounds what is cached. It keeps the part of this call.
function cache.note()
  if cached >= MAX_CACHED then
    parts, cached = { [BASE] = part }, 0
    if part then part.rests = {} end
  end
  cached = cached + 1
end

function cache.of(key) return parts[key] end

-- keep caches the configuration and the COLD fields that belong to the stamp.
function cache.keep(config, fields)
  if not part then
    cache.note()
    part = { rests = {} }
    parts[BASE] = part
  end
  part.stamp, part.config, part.cold = stamp, config, fields
end

end

-- ticked returns the present time of the semaphore's own clock. The clock follows the
-- server's by at most a sixth of the TTL per call, and never goes back.
local function ticked()
  local passed = now - last
  if passed <= 0 then return clock end
  return clock + (passed * 6 <= ttl and passed or min(passed, floor(ttl / 6)))
end

local runEpoch -- the epoch of this run of the server, see identify
local cutOff, load, initialize, unreleased
do

-- Further results of identify: the time from which the TTL is counted; and 2 if the
-- server was a replica, so that an older primary may still reply, otherwise 1.
local runSince, runLoss
local replid -- the replication ID, which changes each time a server becomes a primary; see cutOff

-- The ID of this process, which does not change while this library is loaded. (Names of
-- keys, and the last unpacked configuration and server key, are cached as well.)
local process
local run, runReplid -- the process and the replication ID; the replication ID alone
local runText, storedRun
local knownKeys = {} -- server keys that this process has read or written

-- Commands that may remove keys, or hide that they were used.
local LOSING = {
  flushall = true, flushdb = true, swapdb = true, restore = true, debug = true, replicaof = true, slaveof = true,
  ['config|resetstat'] = true,
}
local RUNNING = { fcall = true, fcall_ro = true, eval = true, eval_ro = true, evalsha = true, evalsha_ro = true }

-- untouched reports whether this process cannot have lost the server key: it has had no
-- key of this name, and has run no command that removes keys. A script cannot determine
-- the former. It therefore also checks that no script was run, except in a cluster, where
-- every slot has a server key. (Failed calls do not count, since the first call of a
-- program fails, and loads it.)
local function untouched()
  if knownKeys[SERVER] or not string.find(call('INFO', 'stats'), 'evicted_keys:0', 1, true) then return false end
  local alone = not string.find(call('INFO', 'cluster'), 'cluster_enabled:1', 1, true)
  for name, calls, rest in string.gmatch(call('INFO', 'commandstats'), 'cmdstat_([^:]+):calls=(%d+)([^\r\n]*)') do
    local loses = LOSING[name] or scripted and alone and RUNNING[name]
    if loses and calls - (match(rest, 'failed_calls=(%d+)') or 0) > 0 then return false end
  end
  return true
end

-- Keys of an unused semaphore expire. If the server's clock steps forward far enough, the
-- keys of a held semaphore expire too. On that clock, such a step is a long time in which
-- no semaphore was used. gap is the time at which such a step was last detected:
-- semaphores may have been lost then.
local gap
local noted = {} -- when a use was last recorded, by server key
local LONG = WEEK / 2

-- noteUse records once an hour that the server is used, and detects gaps.
local function noteUse()
  local at = noted[SERVER]
  if at and now >= at.used and now - at.used < HOUR then
    gap = at.gap
    return
  end
  local key = SERVER .. ':used'
  local used, found = match(call('GET', key) or '', '^(%d+) (%d+)$')
  used, gap = tonumber(used or at and at.used or now), min(tonumber(found or 0), now)
  if now - used > LONG then gap = now end
  if not found or now < used or now - used >= HOUR then
    used = now
    call('SET', key, format('%.0f', used) .. ' ' .. format('%.0f', gap))
  end
  noted[SERVER] = { used = used, gap = gap }
end

-- identify determines which run of which server this is. The server key contains the run
-- that replied last. If that was another run, or the key is missing, state that holders
-- rely on may have been lost: nothing is granted for a TTL. The TTL is counted from now,
-- or from the start of this process if the process cannot have lost the key itself. The
-- start is known to the second; the end of that second is used.
--
-- clientEpoch is the last epoch that the client has received. If it is later than that of
-- the key, data were lost as well: they are older than the client's last reply.
local function identify(clientEpoch, used)
  process = process or match(call('INFO', 'server'), 'run_id:(%x+)')
  if runReplid ~= replid then run, runReplid = process .. replid, replid end
  noteUse()
  local known = call('GET', SERVER)
  if known and known ~= runText then
    runText = known
    cache.discard()
    local since, number, loss
    storedRun, since, number, loss = match(known, '^(%x+) (%d+) (%d+) ([12])$')
    runSince, runEpoch, runLoss = tonumber(since or 0), tonumber(number or 0), tonumber(loss or 0)
    knownKeys[SERVER] = true
  end
  if known and storedRun == run and clientEpoch <= runEpoch then return end
  runEpoch = max(now, clientEpoch + 1, known and runEpoch + 1 or 0)
  runSince, runLoss = now, string.find(call('INFO', 'replication'), 'second_repl_offset:-1', 1, true) and 1 or 2
  if not (known or used or clientEpoch > 0) and runLoss == 1 and untouched() then
    local up = tonumber(match(call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
    runSince = max(0, now - max(0, up - 1) * SECOND)
  end
  runText, storedRun, knownKeys[SERVER] = run .. ' ' .. format('%.0f', runSince) .. ' ' .. format('%.0f', runEpoch) .. ' ' .. runLoss, run, true
  call('SET', SERVER, runText)
end

local checked = -1 -- when the replicas were last checked

-- cutOff reports whether this server still counts a replica as good whose lag exceeds the
-- allowed one. Such a server must not reply. With min-replicas-to-write a server rejects
-- writes once it has noticed the lag, but it checks only once a second. A server that was
-- suspended for a minute serves requests before it checks again, though another one may
-- have been promoted. INFO contains the present lag, and the number of good replicas at
-- the last check. cutOff also reads the replication ID.
function cutOff(promotion)
  if now >= checked and now - checked < SECOND then return false end
  local info = call('INFO', 'replication')
  replid = match(info, 'master_replid:(%x+)') or ''
  local counted, good = match(info, 'min_slaves_good_slaves:(%d+)'), 0
  for lag in string.gmatch(info, 'state=online,offset=%d+,lag=(%d+)') do
    if lag * SECOND <= max(promotion - 2 * SECOND, SECOND) then good = good + 1 end
  end
  if counted and good < tonumber(counted) then return true end
  checked = now
  return false
end

-- Seqs and sessions start a thousand seconds ahead of the server's clock if an earlier
-- state may have been lost. They rise more slowly than the clock, so a later start is
-- higher than all earlier numbers. The exception is a clock that has stepped back by more
-- than a thousand seconds. They never start at a stored number plus LEAP: the stored
-- number may be ahead of the clock already, and two starts from the same snapshot would
-- be equal.
local LEAP = 1e9

-- quarantine returns how long nothing is granted after a loss. Holders rely on a lease
-- for two thirds of a TTL after the last reply. The semaphore's clock may gain a third
-- if the server's steps.
local function quarantine(since, bound) return max(0, ttl + bound - max(0, now - since)) end

-- runQuarantine returns the quarantine of this run of the server. It includes the time
-- that a primary that was cut off may continue to reply.
local function runQuarantine(promotion) return quarantine(runSince, runLoss == 2 and promotion or 0) end

-- unreleased reports whether the semaphore has a layout that no released version wrote.
local UNRELEASED, OTHER_RELEASE = 'SEMALAYOUT unreleased', 'SEMALAYOUT another release'
function unreleased() return call('HEXISTS', BASE, 'state') + call('HEXISTS', BASE, 'state2') + call('HEXISTS', BASE, 'data1') > 0 end

-- load unpacks the configuration and state of the semaphore and reports whether the
-- semaphore exists. It also returns an error if the layout is another one.
function load(state, clientEpoch, promotion)
  local exists = state or call('HEXISTS', BASE, 'config') == 1
  identify(clientEpoch, exists)
  if not exists then return false end
  if not state then return false, redis.error_reply(unreleased() and UNRELEASED or OTHER_RELEASE) end
  clock, last, renewals, lastSeq, inUse, soonest, leaseCount, lowest, stamp = read(HOT, state)
  part = cache.of(BASE)
  if not part or part.stamp ~= stamp then
    local stored = call('HMGET', BASE, 'config', 'cold')
    cache.keep(stored[1], stored[2])
  end
  loadConfig(part.config)
  if part.cold ~= cold then
    lastSession, sessionCount, wanted, waiting, arrivals, notifiedFirst, rampFrom, rampAt, unnotified, notified, epoch, hold, kept, leastLag, stepped = read(COLD, part.cold)
    cold = part.cold
  end
  storedLeases, storedWaiting = leaseCount, waiting
  if epoch ~= runEpoch then
    cold = nil
    epoch = runEpoch
    -- The quarantine starts at the time to which advance will move the clock. (A session
    -- whose last renewal was lost is rejected, see continues, so no session needs more
    -- time.)
    hold = max(hold, ticked() + runQuarantine(promotion))
    lastSeq, lastSession = max(lastSeq, now + LEAP), max(lastSession, now + LEAP)
  end
  return true
end

-- initialize sets the state of a new semaphore. Its clock starts at the server's time, so
-- that deadlines can be read as times. Numbers start after those of an earlier semaphore
-- of the name, which may have been lost.
function initialize(packed, promotion)
  loadConfig(packed)
  local first = max(tonumber(call('GET', TOMBSTONE) or 0), now + LEAP)
  clock, last, lastSeq, lastSession, renewals, inUse, wanted = now, now, first, first, 0, 0, 0
  waiting, arrivals, notifiedFirst, rampFrom, rampAt, soonest = 0, 0, 0, capacity, now, NEVER
  sessionCount, leaseCount, lowest, unnotified, notified, storedLeases, storedWaiting, stamp, part = 0, 0, 0, 0, 0, 0, 0, 0, nil
  epoch, hold, kept, leastLag, stepped = runEpoch, clock + max(runQuarantine(promotion), quarantine(gap, 0)), 0, 0, 0
  call('DEL', SESSIONS, LEASES, QUEUE, BLOCKS, SPENT)
end

end

-- leaveTombstone makes Seqs and sessions of the next semaphore of this name start after
-- a number. The key lasts longer than any step back of a clock.
local function leaveTombstone(number) call('SET', TOMBSTONE, format('%.0f', number), 'PX', format('%.0f', 4 * WEEK / 1000)) end

local noteHighest, remember
do

-- plausible reports whether a client may have received a Seq. A Seq too far ahead of the
-- clock would exhaust the numbers.
local MAX_LEAD = 1e14
local function plausible(seq) return seq <= max(now, 0) + MAX_LEAD end

-- noteHighest makes new Seqs higher than one that a client has received.
function noteHighest(seq)
  if seq > lastSeq and plausible(seq) then lastSeq = seq end
end

-- remember does the same for a missing semaphore, which may have been lost.
function remember(seq)
  if seq > now and plausible(seq) and seq > tonumber(call('GET', TOMBSTONE) or 0) then leaveTombstone(seq) end
end

end

-- keep sets the expiry of a key to lifetime from now, unless an administrator has
-- configured the semaphore.
local function keep(key)
  if version == 1 then call('PEXPIRE', key, lifetime) end
end

-- effective returns the present capacity, which is below the configured one during a ramp.
local function effective()
  if ramp == 0 or rampFrom >= capacity then return capacity end
  local passed = max(last - rampAt, 0)
  local seconds, rest = floor(passed / SECOND), passed % SECOND
  if seconds > floor((capacity - rampFrom) / ramp) then return capacity end
  -- rest * ramp / SECOND, computed in exact parts
  local risen = seconds * ramp + rest * floor(ramp / SECOND) + floor(rest * (ramp % SECOND) / SECOND)
  return min(capacity, rampFrom + risen)
end

local function fits(weight) return clock >= hold and weight <= effective() - inUse end

local advance
do

-- shorten corrects times after the clock stepped back: it ends each grant of a rate
-- within a window from now, and restarts a ramp at its present value.
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

-- expire removes grants of a rate that have left the window.
local function expire()
  while kind == RATE do
    local some = call('LRANGE', SPENT, 0, 63)
    local removed = 0
    for _, spent in ipairs(some) do
      local till, weight = match(spent, '^%d+ (%d+) (%d+)')
      if tonumber(till) > last then break end
      inUse = inUse - tonumber(weight)
      removed = removed + 1
    end
    if removed > 0 then call('LTRIM', SPENT, removed, -1) end
    if removed < 64 then return end
  end
end

-- advance updates the semaphore's own clock, and ends the grants of a rate that have left
-- the window.
function advance()
  local back = now < last
  if back then shorten() end
  clock = ticked()
  last = now
  if back then leastLag, stepped = min(leastLag, last - clock), clock end
  expire()
end

end
