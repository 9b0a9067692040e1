-- The beginning and the end of a call, which writes all changes and notifies sessions.

-- start sets the keys and the time of a call.
local function start(keys, args)
  if not call then findFunctions() end
  SERVER, NAME, CHANNEL, REQUEST = keys[2], args[1], args[2], args[3]
  if BASE ~= keys[1] then
    BASE = keys[1]
    SESSIONS, LEASES, QUEUE = BASE .. ':sessions', BASE .. ':leases', BASE .. ':queue'
    BLOCKS, SPENT, TOMBSTONE = BASE .. ':blocks', BASE .. ':spent', BASE .. ':tombstone'
  end
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local CUT_OFF = 'NOREPLICAS no reply from its replicas for too long'

-- resetCall discards the state of the last call.
local function resetCall()
  sessions, woken, freshLeases, droppedSeqs, goneFields, newFields, owners = {}, {}, {}, {}, {}, {}, {}
  fetched, fetchedAt, lastFetched, members, fetching = {}, 1, -1, {}, 4
  arrived, arrivedAt, byArrival, leftArrivals = {}, 1, {}, {}
  slotNumbers.taken = nil
end

local function allKeys() return { BASE, SESSIONS, LEASES, QUEUE, BLOCKS, SPENT } end

-- bulk calls a command with many arguments, in portions that fit on Lua's stack.
local function bulk(command, key, items)
  for i = 1, #items, 1000 do call(command, key, unpack(items, i, min(i + 999, #items))) end
end

local function packState() return pack(HOT, clock, last, renewals, lastSeq, inUse, soonest, leaseCount, lowest, stamp) end

local write
do -- local to write, since Lua allows at most 200 locals at a time

-- removeScores removes members from a sorted set by their scores. It removes each run of
-- consecutive scores with one command, since scores mostly come in runs.
local function removeScores(key, scores, text)
  table.sort(scores)
  local from, to = scores[1], scores[1]
  for i = 2, #scores + 1 do
    if scores[i] ~= to + 1 then
      call('ZREMRANGEBYSCORE', key, text(from), text(to))
      from = scores[i]
    end
    to = scores[i]
  end
end

local function addField(name, value)
  local n = #newFields
  newFields[n + 1], newFields[n + 2] = name, value
end

-- writeSession adds the fields of a session to those that are written.
local function writeSession(r)
  local rest = rests.pack(r)
  if rest ~= r.rest then
    r.stamp = max(now, r.stamp + 1)
    addField(rests.field(r.id), rest)
    rests.keep(r.id, r.stamp, rest)
  end
  addField(fieldOf(r.id), pack(RECORD, r.seq, r.deadline, r.renewed, r.renewal, r.lastResult, r.unacknowledged, r.scored, r.held, r.stamp) .. resultsOf(r))
end

local function writeLeases()
  removeScores(LEASES, droppedSeqs, seqText)
  local added = {}
  for _, l in ipairs(freshLeases) do
    if not l.removed then
      local n = #added
      added[n + 1], added[n + 2] = l.seq, leaseMember(l)
      addField('L' .. l.seq, leaseField(l))
    end
  end
  if #added > 0 then
    bulk('ZADD', LEASES, added)
    if storedLeases == #droppedSeqs then keep(LEASES) end
  end
  if lowest == 0 and leaseCount > 0 then lowest = tonumber(numberIn(call('ZRANGE', LEASES, 0, 0)[1])) end
end

local function writeQueue()
  removeScores(QUEUE, leftArrivals, numberText)
  local added = {}
  for i = arrivedAt, #arrived do
    local t = arrived[i]
    if not t.removed then
      local n, arrival = #added, numberText(t.arrival)
      added[n + 1], added[n + 2] = arrival, ticketMember(t)
      addField(ticketField(t.session, t.id), arrival)
    end
  end
  if #added == 0 then return end
  bulk('ZADD', QUEUE, added)
  if storedWaiting == #leftArrivals then keep(QUEUE) end
end

-- notify publishes one message to each instance of the woken sessions. It skips the
-- session that receives the reply.
local function notify(except)
  local sent = {}
  for id, r in pairs(woken) do
    if id ~= except and not r.ended and not sent[r.instance] then
      sent[r.instance] = true
      call('PUBLISH', CHANNEL .. r.instance, NAME)
    end
  end
end

-- write writes all changes of a call and notifies the woken sessions, except replyTo.
function write(replyTo)
  writeLeases()
  writeQueue()
  local putOff = version == 1 and (now < kept or now - kept > HOUR)
  if putOff then kept = now end
  cold = pack(COLD, lastSession, sessionCount, wanted, waiting, arrivals, notifiedFirst, rampFrom, rampAt, unnotified, notified, epoch, hold, kept, leastLag, stepped)
  if not part or part.cold ~= cold or part.config ~= configured then
    stamp = max(now, stamp + 1)
    addField('cold', cold)
    cache.keep(configured, cold)
  end
  addField(STATE, packState())
  for id, r in pairs(sessions) do
    if r and r.dirty then writeSession(r) end
  end
  if slotNumbers.taken then addField('slots', slotNumbers.all()) end
  bulk('HDEL', BASE, goneFields) -- before HSET: a ticket may have been queued again
  bulk('HSET', BASE, newFields)
  if putOff then
    for _, key in ipairs(allKeys()) do keep(key) end
  end
  notify(replyTo)
end

end
