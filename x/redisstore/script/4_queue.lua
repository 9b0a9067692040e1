-- The queue and grants from it.

local fetched, fetchedAt, lastFetched -- arrival numbers that were read from the head of the sorted set
local members                         -- their members of the sorted set
local fetching                        -- how many to read next; starts low and doubles, since mostly a few suffice
local arrived, arrivedAt              -- tickets queued in this call, after all of those
local byArrival                       -- decoded tickets
local leftArrivals                    -- arrival numbers that write removes from the sorted set

local function ticketMember(t)
  return t.id .. ' session=' .. t.session.id .. ' weight=' .. numberText(t.weight) .. ' least=' .. numberText(t.least) ..
    ' since=' .. timeText(t.since) .. ' until=' .. integer(t.till) .. ' as=' .. (t.pooled and 'block' or 'permit') .. ' details=' .. t.details
end

local function decodeTicket(member, arrival)
  local id, owner, weight, least, since, till, as, details =
    match(member, '^(%d+) session=(%d+) weight=(%d+) least=(%d+) since=(%d+) until=(%d+) as=(%S+) details=(.*)$')
  local t = {
    id = id, session = session(owner), weight = number(weight), least = number(least), till = number(till),
    since = number(since), pooled = as == 'block', details = details, arrival = arrival, stored = true, removed = false,
  }
  byArrival[arrival] = t
  return t
end

-- first returns the first ticket of the queue.
local function first()
  if waiting == 0 then return nil end
  while true do
    local arrival = fetched[fetchedAt]
    if arrival == nil then
      if lastFetched == NEVER or storedWaiting == 0 then break end
      local some = call('ZRANGEBYSCORE', QUEUE, '(' .. integer(lastFetched), '+inf', 'WITHSCORES', 'LIMIT', 0, fetching)
      for i = 1, #some, 2 do
        lastFetched = tonumber(some[i + 1])
        fetched[#fetched + 1] = lastFetched
        members[lastFetched] = some[i]
      end
      if #some < 2 * fetching then lastFetched = NEVER end
      fetching = min(2 * fetching, 64)
    else
      local t = byArrival[arrival] or decodeTicket(members[arrival], arrival)
      if not t.removed then return t end
      fetchedAt = fetchedAt + 1
    end
  end
  while arrived[arrivedAt].removed do arrivedAt = arrivedAt + 1 end
  return arrived[arrivedAt]
end

-- enqueue appends a ticket to the queue.
local function enqueue(t)
  local r = t.session
  arrivals = arrivals + 1
  t.arrival = arrivals
  arrived[#arrived + 1] = t
  byArrival[arrivals] = t
  r.tickets[t.id] = t
  r.lastTicket = max(r.lastTicket, tonumber(t.id))
  r.waits = r.waits + 1
  r.dirty = true
  waiting = waiting + 1
  wanted = wanted + t.least
end

local function ticketField(r, id) return 'T' .. r.id .. '/' .. id end

-- ticketOf returns a queued ticket of a session, or false.
local function ticketOf(r, id)
  local t = r.tickets[id]
  if t == nil then
    local arrival = r.waitsStored > 0 and tonumber(id) <= r.lastTicket and tonumber(call('HGET', BASE, ticketField(r, id)) or nil)
    t = arrival and (byArrival[arrival] or decodeTicket(call('ZRANGEBYSCORE', QUEUE, arrival, arrival)[1], arrival)) or false
    r.tickets[id] = t
  end
  return t and not t.removed and t
end

-- dequeue removes a ticket from the queue.
local function dequeue(t)
  local r = t.session
  t.removed = true
  waiting = waiting - 1
  wanted = wanted - t.least
  r.waits = r.waits - 1
  r.dirty = true
  if t.stored then
    leftArrivals[#leftArrivals + 1] = t.arrival
    goneFields[#goneFields + 1] = ticketField(r, t.id)
  end
end

local endSession
do

-- ownersIn reads a whole sorted set and returns its members by session. It is used only
-- for sessions that end with leases or tickets, mostly after a crash. Its cost grows with
-- the number of all leases. In return, all other calls find what they need in one hash.
local function ownersIn(key)
  local owned = {}
  for from = 0, NEVER, 1000 do
    local some = call('ZRANGE', key, from, from + 999, 'WITHSCORES')
    for i = 1, #some, 2 do
      local id = match(some[i], ' session=(%d+)')
      owned[id] = owned[id] or {}
      table.insert(owned[id], some[i])
      table.insert(owned[id], some[i + 1])
    end
    if #some < 2000 then return owned end
  end
end

-- endSession removes a session with its leases and tickets.
function endSession(r)
  if r.waits > 0 then
    owners.queue = owners.queue or ownersIn(QUEUE)
    local mine = owners.queue[r.id] or {}
    for i = 1, #mine, 2 do
      local arrival = tonumber(mine[i + 1])
      local t = byArrival[arrival] or decodeTicket(mine[i], arrival)
      r.tickets[t.id] = r.tickets[t.id] or t
    end
    for _, t in pairs(r.tickets) do
      if t and not t.removed then dequeue(t) end
    end
  end
  if r.held > 0 then
    owners.leases = owners.leases or ownersIn(LEASES)
    local mine = owners.leases[r.id] or {}
    for i = 1, #mine, 2 do leaseOf(r, numberIn(mine[i])) end
    for _, l in pairs(r.leases) do
      if l then drop(l) end
    end
  end
  call('ZREM', SESSIONS, memberOf(r))
  call('HDEL', BASE, fieldOf(r.id), rests.field(r.id))
  sessionCount = sessionCount - 1
  sessions[r.id] = false
  r.ended = true
end

end

-- tooLarge reports whether a weight exceeds the largest capacity there can be. A
-- semaphore with capacity 0 is paused, and no weight is too large for it.
local function tooLarge(weight)
  local most = max(whole, capacity)
  return weight > most and most > 0
end

local function evenShare() return floor(capacity / sessionCount) end

-- rejectQueued removes a ticket from the queue and rejects it.
local function rejectQueued(t, why)
  dequeue(t)
  reject(t.session, t.id, why)
end

local reap, grant
do

-- endExpired ends an expired session and returns true. It returns false if this call has
-- reached its limit.
local function endExpired(r)
  if budget == 0 then
    more = true
    return false
  end
  budget = budget - 1
  endSession(r)
  return true
end

-- reap ends sessions whose deadline has passed.
function reap()
  while soonest < clock do
    local r = oldest()
    if not r or not expired(r) or not endExpired(r) then return end
  end
end

-- portion returns the weight to grant to a ticket: what is free, but no more than the
-- even share of its session while other sessions wait.
local function portion(t)
  local most = t.weight
  if most == t.least then return most end
  if othersWait(t.session) then most = min(most, evenShare()) end
  return max(t.least, min(most, effective() - inUse))
end

-- grant serves the queue strictly from its head. It ends expired sessions that it finds,
-- up to the limit of this call.
function grant()
  local t = first()
  while t do
    if expired(t.session) then
      if not endExpired(t.session) then return end
    elseif t.till > 0 and t.till < clock then
      rejectQueued(t, IS.TIMED_OUT)
    elseif not fits(t.least) then
      return
    else
      local weight = portion(t)
      dequeue(t)
      grantTicket(t, weight)
    end
    t = first()
  end
end

end

-- due returns the time until the first ticket may be granted by the passage of time
-- alone; nil if it may not.
local function due()
  local t = first()
  if not t then return nil end
  if clock < hold then return hold - clock end
  local missing = inUse + t.least - effective()
  if missing <= 0 or t.least > capacity then return nil end
  if kind == RATE then
    local at = 0
    while true do
      local some = call('LRANGE', SPENT, at, at + 63)
      for _, spent in ipairs(some) do
        local till, weight = match(spent, '^%d+ (%d+) (%d+)')
        missing = missing - tonumber(weight)
        if missing <= 0 then return max(tonumber(till) - last, 0) end
      end
      if #some < 64 then break end
      at = at + 64
    end
  end
  if ramp > 0 and effective() < capacity and inUse + t.least <= capacity then
    local needed = inUse + t.least - rampFrom
    local at = rampAt + floor(needed / ramp) * SECOND + math.ceil(needed % ramp * SECOND / ramp)
    return max(at - last, 0)
  end
  return nil
end

-- settle grants what can be granted. It notifies sessions that can return permits, and the
-- session of the first ticket if that session has to watch the time.
local function settle()
  grant()
  recall()
  local t = first()
  if t and notifiedFirst ~= t.arrival and due() then
    notifiedFirst = t.arrival
    wake(t.session)
  end
end

-- begin applies the time that has passed since the last call.
local function begin()
  budget, more = 16, false -- of expired sessions, others are ended by later calls
  cold = nil -- until write sets it: if this call fails, the next one has to read it
  advance()
  reap()
  settle()
end

local function firstLeast()
  local t = first()
  return t and t.least or 0
end
