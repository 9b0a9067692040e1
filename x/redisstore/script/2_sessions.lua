-- Sessions and their results.

-- A session has two fields. s… contains what almost every call changes, in the format RECORD, and the
-- packed results. c… contains the rest. The stamp in RECORD changes with the rest.
--
-- unacknowledged is the number of results, held the number of leases. owner is the 16 bytes of
-- the session's key and its principal. lastTicket is the highest ticket that was ever queued:
-- a higher one is not in the queue. before is the number of the last result of an earlier run
-- of the server; -1 once the session has sent a batch to this run.
local RECORD = '<ddddddddd'

local function fieldOf(id) return 's' .. id end

local decodeSession
local rests = {} -- functions for sessions and their rests
do

local RECORD_SIZE, REST = 9 * 8, '<I4c0dddddddI4c0I4c0'

function rests.field(id) return 'c' .. id end

-- keep unpacks and caches the rest of a session.
function rests.keep(id, at, text)
  local rest = { stamp = at, text = text }
  rest.owner, rest.revocations, rest.epoch, rest.recalled, rest.pooled, rest.waits, rest.before, rest.lastTicket, rest.instance, rest.client = read(REST, text)
  if not part.rests[id] then cache.note() end
  part.rests[id] = rest
  return rest
end

-- of returns the rest of a session, as keep does.
function rests.of(id, at)
  local rest = part.rests[id]
  if rest and rest.stamp == at then return rest end
  return rests.keep(id, at, call('HGET', BASE, rests.field(id)))
end

function rests.pack(r)
  return pack(REST, #r.owner, r.owner, r.revocations, r.epoch, r.recalled, r.pooled, r.waits, r.before, r.lastTicket, #r.instance, r.instance, #r.client, r.client)
end

-- new returns a session without its leases and tickets. Its tables leases and
-- tickets contain those that are read later; false means absent. newResults are the
-- results that this call adds.
function rests.new(id, owner, instance, client)
  return {
    id = id, seq = 0, deadline = 0, renewed = 0, renewal = 0, lastResult = 0, unacknowledged = 0, scored = 0, held = 0, stamp = 0,
    recalled = 0, pooled = 0, waits = 0, waitsStored = 0, revocations = 0, epoch = epoch, before = -1, lastTicket = 0,
    instance = instance, client = client, owner = owner, results = '', dirty = false, ended = false, leases = {}, tickets = {}, newResults = {},
  }
end

function decodeSession(id, packed)
  local r = rests.new(id)
  r.seq, r.deadline, r.renewed, r.renewal, r.lastResult, r.unacknowledged, r.scored, r.held, r.stamp = read(RECORD, packed)
  r.results = sub(packed, RECORD_SIZE + 1)
  local rest = rests.of(id, r.stamp)
  r.rest, r.owner, r.revocations, r.epoch, r.recalled, r.pooled = rest.text, rest.owner, rest.revocations, rest.epoch, rest.recalled, rest.pooled
  r.waits, r.waitsStored, r.before, r.lastTicket, r.instance, r.client = rest.waits, rest.waits, rest.before, rest.lastTicket, rest.instance, rest.client
  return r
end

end

-- resultsOf returns the packed results that the session has not acknowledged.
local function resultsOf(r)
  if #r.newResults > 0 then r.results, r.newResults = r.results .. table.concat(r.newResults), {} end
  return r.results
end

-- session returns the session with a number, or false.
local function session(id)
  local r = sessions[id]
  if r == nil then
    local packed = call('HGET', BASE, fieldOf(id))
    r = packed and decodeSession(id, packed)
    sessions[id] = r
  end
  return r
end

local function memberOf(r) return r.id .. ' ' .. r.instance end

local function score(r)
  r.scored, r.dirty = r.deadline, true
  call('ZADD', SESSIONS, integer(r.deadline), memberOf(r))
end

-- renew extends a session by a whole TTL. It updates the sorted set only if the deadline
-- has moved far enough. A deadline there is never later than in the record.
local function renew(r)
  r.deadline = clock + ttl
  r.renewed = last
  renewals = renewals + 1
  r.renewal = renewals
  r.epoch, r.before = epoch, -1
  r.dirty = true
  soonest = min(soonest, r.deadline)
  if r.deadline - r.scored > ttl / 64 then score(r) end
end

local function expired(r) return r.deadline < clock end

local function numberIn(member) return match(member, '^%d+') end

-- oldest returns the session with the earliest renewal. After the clock has stepped back,
-- several sessions may have the same deadline; the order of renewal then decides.
local function oldest()
  while true do
    local two = call('ZRANGE', SESSIONS, 0, 1, 'WITHSCORES')
    if #two == 0 then
      soonest = NEVER
      return nil
    end
    local found = session(numberIn(two[1]))
    local late = found.deadline ~= found.scored and found
    if two[4] == two[2] then
      for _, member in ipairs(call('ZRANGEBYSCORE', SESSIONS, two[2], two[2], 'LIMIT', 0, 64)) do
        local other = session(numberIn(member))
        if other.deadline ~= other.scored then late = other end
        if other.renewal < found.renewal then found = other end
      end
    end
    if not late then
      soonest = found.deadline
      return found
    end
    score(late)
  end
end

-- undecided returns how long it takes until it is known whether all permits in use are
-- held; 0 if it is known. By then the quarantine has ended, and a session that has sent
-- nothing for a TTL on the server's clock has expired on the semaphore's.
--
-- When a session was renewed, the clock was at its deadline less a TTL, and lagged
-- behind the server's by at least leastLag. If no deadline is earlier than the server's
-- clock less leastLag, all sessions were therefore renewed within a TTL. No session has to
-- be read then.
local function undecided()
  local held = max(0, hold - clock)
  if kind == RATE or last - leastLag <= soonest then return held end -- no session holds permits of a rate
  local r = oldest()
  if not r then
    leastLag = last - clock
    return held
  end
  local renewedAt = r.deadline - ttl
  if renewedAt > stepped then leastLag = max(leastLag, r.renewed - renewedAt) end -- the lag has only grown since then
  if expired(r) then return max(held, 1) end -- this call has reached its limit of expired sessions
  if last - r.renewed <= ttl then return held end
  return max(held, r.deadline - clock + 1)
end

-- wake marks a session, so that its instance is notified at the end of the call.
local function wake(r) woken[r.id] = r end

-- RESULT is the format of a result, or of a run of grants. In a run, number, lease and
-- ticket of each grant are one more than those of the grant before. The last text is the
-- slots of a grant or the note of a revocation.
local RESULT = '<dddddI4c0I4c0'

local function ticketAfter(ticket, n) return n == 0 and ticket or format('%.0f', ticket + n) end

-- addResult adds a result for a session.
local function addResult(r, why, ticket, lease, weight, note)
  if r.epoch ~= epoch and r.before < 0 then r.before = r.lastResult end
  r.lastResult = r.lastResult + 1
  r.unacknowledged = r.unacknowledged + 1
  r.newResults[#r.newResults + 1] = pack(RESULT, r.lastResult, why, lease, weight, 1, #ticket, ticket, #note, note)
  r.dirty = true
  wake(r)
end

local function reject(r, ticket, why) addResult(r, why, ticket, 0, 0, '') end

-- filterResults removes the results for which keepResult returns false.
local function filterResults(r, keepResult)
  local all, kept, at = resultsOf(r), {}, 1
  r.unacknowledged = 0
  while at <= #all do
    local n, why, lease, weight, count, ticket, note
    n, why, lease, weight, count, ticket, note, at = read(RESULT, all, at)
    for i = 0, count - 1 do
      local of = ticketAfter(ticket, i)
      if keepResult(n + i, why, of, lease + i) then
        kept[#kept + 1] = pack(RESULT, n + i, why, lease + i, weight, 1, #of, of, #note, note)
        r.unacknowledged = r.unacknowledged + 1
      elseif why == IS.REVOKED then
        r.revocations = r.revocations - 1
      end
    end
  end
  r.results, r.dirty = table.concat(kept), true
end

-- notePool updates the hash of sessions with blocks after the number of this session's
-- blocks has changed. was is the old number.
local function notePool(r, was)
  r.dirty = true
  if was == 0 then
    unnotified = unnotified + 1
    call('HSET', BLOCKS, r.id, 'held')
    if unnotified + notified == 1 then keep(BLOCKS) end
  elseif r.pooled == 0 then
    if r.recalled == 1 then notified = notified - 1 else unnotified = unnotified - 1 end
    r.recalled = 0
    call('HDEL', BLOCKS, r.id)
  end
end

local function noteRecalled(r, recalled)
  r.recalled = recalled and 1 or 0
  local by = recalled and 1 or -1
  notified, unnotified = notified + by, unnotified - by
  call('HSET', BLOCKS, r.id, recalled and 'recalled' or 'held')
  r.dirty = true
end

local function othersWait(r) return waiting > r.waits end

-- recalls reports whether a session should return the unused part of its blocks.
local function recalls(r) return othersWait(r) or draining == 1 or inUse > effective() end

local recall
do

local function holdersThat(are)
  local found, all = {}, call('HGETALL', BLOCKS)
  for i = 1, #all, 2 do
    if all[i + 1] == are then found[#found + 1] = session(all[i]) end
  end
  return found
end

-- recall notifies the sessions with blocks once when another session begins to wait, the
-- semaphore drains, or more is in use than the capacity.
function recall()
  if unnotified == 0 and notified == 0 then return end
  local pressed = waiting > 0 or draining == 1 or inUse > effective()
  if pressed and unnotified > 0 then
    for _, r in ipairs(holdersThat('held')) do
      if recalls(r) then
        noteRecalled(r, true)
        wake(r)
      end
    end
  elseif not pressed and notified > 0 then
    for _, r in ipairs(holdersThat('recalled')) do noteRecalled(r, false) end
  end
end

end
