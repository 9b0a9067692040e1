-- How a call begins and ends: what has changed is written, and those who have
-- news are told.

-- start begins a call.
local function start(keys, args)
  if not call then findFunctions() end
  SERVER, NAME, CHANNEL, REQUEST = keys[2], args[1], args[2], args[3]
  if BASE ~= keys[1] then
    BASE = keys[1]
    SESSIONS, LEASES, LINE = BASE .. ':sessions', BASE .. ':leases', BASE .. ':line'
    BLOCKS, SPENT, GRAVE = BASE .. ':blocks', BASE .. ':spent', BASE .. ':grave'
  end
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- forget is for what the last call has looked at.
local function forget()
  sessions, woken, freshLeases, droppedSeqs = {}, {}, {}, {}
  fetched, fetchedAt, lastFetched, arrived, arrivedAt, byArrival, leftArrivals = {}, 1, -1, {}, 1, {}, {}
end

-- bulk calls a command with many arguments, in portions that Lua's stack takes.
local function bulk(command, key, items)
  for i = 1, #items, 1000 do call(command, key, unpack(items, i, min(i + 999, #items))) end
end

local function packState()
  return pack(STATE, clock, last, lastSeq, lastSession, renewals, inUse, wanted, waiting, arrivals, hinted,
    rampFrom, rampAt, soonest, sessionCount, leaseCount, lowest, untold, told, epoch, hold, kept)
end

local write
do -- what only write needs; a chunk has no more than 200 locals

-- removeScores takes members out of a sorted set by their scores: whole runs of
-- them at a time, since they mostly come in runs.
local function removeScores(key, scores)
  if #scores < 2 then
    local only = scores[1] and integer(scores[1])
    return only and call('ZREMRANGEBYSCORE', key, only, only)
  end
  table.sort(scores)
  local from, to = scores[1], scores[1]
  for i = 2, #scores + 1 do
    if scores[i] ~= to + 1 then
      call('ZREMRANGEBYSCORE', key, from, to)
      from = scores[i]
    end
    to = scores[i]
  end
end

local function writeLeases()
  removeScores(LEASES, droppedSeqs)
  local added = {}
  for _, l in ipairs(freshLeases) do
    if not l.gone then
      local n = #added
      added[n + 1], added[n + 2] = l.seq, leaseMember(l)
      local fields = l.session.fields
      n = #fields
      fields[n + 1], fields[n + 2] = 'L' .. l.seq, brief(l)
    end
  end
  if #added > 0 then
    bulk('ZADD', LEASES, added)
    if storedLeases == #droppedSeqs then keep(LEASES) end
  end
  if lowest == 0 and leaseCount > 0 then lowest = tonumber(numberIn(call('ZRANGE', LEASES, 0, 0)[1])) end
end

local function writeLine()
  removeScores(LINE, leftArrivals)
  local added = {}
  for i = arrivedAt, #arrived do
    local t = arrived[i]
    if not t.gone then
      local n = #added
      added[n + 1], added[n + 2] = t.arrival, ticketMember(t)
      local fields = t.session.fields
      n = #fields
      fields[n + 1], fields[n + 2] = 'T' .. t.id, integer(t.arrival)
    end
  end
  if #added == 0 then return end
  bulk('ZADD', LINE, added)
  if storedWaiting == #leftArrivals then keep(LINE) end
end

local function writeSession(r)
  local fields = r.fields
  if #r.news > 0 then
    local n = #fields
    fields[n + 1], fields[n + 2] = 'fates', fatesOf(r)
  elseif r.refated and r.unheard == 0 then
    r.gone[#r.gone + 1] = 'fates'
  end
  bulk('HDEL', r.key, r.gone) -- first: a ticket may have come again
  bulk('HSET', r.key, fields)
end

-- putOffExpiry is done now and then, for all there is.
local function putOffExpiry()
  for _, key in ipairs({ BASE, SESSIONS, LEASES, LINE, BLOCKS, SPENT }) do keep(key) end
  for _, member in ipairs(call('ZRANGE', SESSIONS, 0, -1)) do keep(keyOf(numberIn(member))) end
end

-- hint tells the instances of those who have news: once, and not the one that is
-- being answered.
local function hint(except)
  local told = {}
  for id, r in pairs(woken) do
    if id ~= except and not r.ended and not told[r.instance] then
      told[r.instance] = true
      call('PUBLISH', CHANNEL .. r.instance, NAME)
    end
  end
end

-- write ends a call.
function write(answered)
  writeLeases()
  writeLine()
  local written = { 'state', '' }
  for _, r in pairs(sessions) do
    if r and r.dirty and not r.ended then
      writeSession(r)
      local n = #written
      written[n + 1], written[n + 2] = fieldOf(r.id), encodeSession(r)
    end
  end
  local putOff = version == 1 and (now < kept or now - kept > HOUR)
  if putOff then kept = now end
  written[2] = packState()
  bulk('HSET', BASE, written)
  if putOff then putOffExpiry() end
  hint(answered)
end

end
