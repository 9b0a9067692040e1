-- Leases. In the sorted set they are text, by Seq. In the hash they are fields, so
-- that a batch finds those it releases with one read.

local freshLeases -- that were made in this call
local droppedSeqs -- that are in the sorted set and have to leave it

-- brief is the field: the weight, b for a block, r if revoked; and whose it is.
local function brief(l) return numberText(l.weight) .. (l.pooled and 'b' or '') .. (l.revoked and 'r ' or ' ') .. l.session.id end

local function leaseMember(l)
  return l.seq .. ' session=' .. l.session.id .. ' weight=' .. numberText(l.weight) .. ' since=' .. timeText(l.since) ..
    ' as=' .. (l.pooled and 'block' or 'permit') .. (l.revoked and ',revoked' or '') .. ' meta=' .. l.meta
end

-- noteLease has the session know a lease, from its field. One that is not there,
-- or not its own, is false.
local function noteLease(r, seq, field)
  local l = false
  if field then
    local weight, pooled, revoked, owner = match(field, '^(%d+)(b?)(r?) (%d+)$')
    if owner == r.id then
      l = { seq = seq, session = r, weight = number(weight), pooled = pooled == 'b', revoked = revoked == 'r', stored = true, gone = false }
    end
  end
  r.leases[seq] = l
  return l
end

-- leaseOf is a session's lease, or false.
local function leaseOf(r, seq)
  local l = r.leases[seq]
  if l == nil then l = noteLease(r, seq, call('HGET', BASE, 'L' .. seq)) end
  return l
end

-- complete reads what the field does not say of a lease.
local function complete(l)
  if l.meta then return end
  local since, meta = match(call('ZRANGEBYSCORE', LEASES, l.seq, l.seq)[1], ' since=(%d+) as=%S+ meta=(.*)$')
  l.since, l.meta = tonumber(since), meta
end

local function keepLease(l)
  local r = l.session
  r.leases[l.seq] = l
  r.held = r.held + 1
  freshLeases[#freshLeases + 1] = l
  if leaseCount == 0 then lowest = lastSeq end
  leaseCount = leaseCount + 1
  if l.pooled then
    r.pooled = r.pooled + 1
    notePool(r, r.pooled - 1)
  end
end

-- lend makes a lease for a ticket, and tells. What a rate grants is spent at once
-- and needs no lease.
local function lend(t, weight)
  lastSeq = lastSeq + 1
  inUse = inUse + weight
  local r = t.session
  if kind == RATE then
    if call('RPUSH', SPENT, integer(last + window) .. ' ' .. integer(weight)) == 1 then keep(SPENT) end
  else
    keepLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = t.pooled, revoked = false, since = last, meta = t.meta, stored = false, gone = false })
  end
  tell(r, IS.GRANTED, t.id, lastSeq, weight, '')
end

-- drop frees a lease.
local function drop(l)
  local r = l.session
  inUse = inUse - l.weight
  leaseCount = leaseCount - 1
  r.leases[l.seq] = false
  r.held = r.held - 1
  r.dirty = true
  local seq = tonumber(l.seq)
  if seq == lowest then lowest = 0 end
  if l.stored then
    droppedSeqs[#droppedSeqs + 1] = seq
    goneFields[#goneFields + 1] = 'L' .. l.seq
  else
    l.gone = true
  end
  if l.pooled then
    r.pooled = r.pooled - 1
    notePool(r, r.pooled + 1)
  end
end

-- rewrite is after a change of a lease.
local function rewrite(l)
  if not l.stored then return end -- yet
  complete(l)
  call('ZREMRANGEBYSCORE', LEASES, l.seq, l.seq)
  call('ZADD', LEASES, l.seq, leaseMember(l))
  if leaseCount == 1 then keep(LEASES) end -- that was the only one
  call('HSET', BASE, 'L' .. l.seq, brief(l))
end

-- release gives back some of a lease, or all of it. One that is not there any
-- more is moot.
local function release(r, seq, weight)
  local l = leaseOf(r, seq)
  if not l or weight < 0 then return end
  if weight == 0 or weight >= l.weight then return drop(l) end
  l.weight = l.weight - weight
  inUse = inUse - weight
  rewrite(l)
end

-- split parts a lease in two. The new one has a Seq of its own.
local function split(r, ticket, weight, seq)
  local l = leaseOf(r, seq)
  if not l or l.revoked or weight <= 0 or weight >= l.weight then return refuseTicket(r, ticket, IS.INVALID) end
  complete(l)
  l.weight = l.weight - weight
  rewrite(l)
  lastSeq = lastSeq + 1
  keepLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = l.pooled, revoked = false, since = l.since, meta = l.meta, stored = false, gone = false })
  tell(r, IS.GRANTED, ticket, lastSeq, weight, '')
end

-- acknowledge forgets the results that the session has heard. One that was told to
-- give up a lease has done so.
local function acknowledge(r, upTo)
  if r.unheard == 0 then return end
  if upTo >= r.lastResult and r.revocations == 0 then -- the usual case, in which nothing need be read
    r.news, r.unheard, r.results = {}, 0, ''
    return
  end
  sift(r, function(n, why, ticket, lease)
    if n > upTo then return true end
    if why == IS.REVOKED then release(r, seqText(lease), 0) end
    return false
  end)
end
