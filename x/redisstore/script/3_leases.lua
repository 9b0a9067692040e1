-- Leases. In the sorted set they are text, by Seq. In the hash they are fields, so
-- that a batch finds those it releases with one read.

local freshLeases -- that were made in this call
local droppedSeqs -- that are in the sorted set and have to leave it

-- brief is the field: the weight, b for a block, r if revoked; and whose it is.
local function brief(l)
  return numberText(l.weight) .. (l.pooled and 'b' or '') .. (l.revoked and 'r ' or ' ') .. l.session.id .. (l.slots == '' and '' or ' ' .. l.slots)
end

local function leaseMember(l)
  return l.seq .. ' session=' .. l.session.id .. ' weight=' .. numberText(l.weight) .. ' since=' .. timeText(l.since) ..
    ' as=' .. (l.pooled and 'block' or 'permit') .. (l.revoked and ',revoked' or '') ..
    (l.slots == '' and '' or ' slots=' .. l.slots) .. ' details=' .. l.details
end

-- noteLease has the session know a lease, from its field. One that is not there,
-- or not its own, is false.
local function noteLease(r, seq, field)
  local l = false
  if field then
    local weight, pooled, revoked, owner, slots = match(field, '^(%d+)(b?)(r?) (%d+) ?(.*)$')
    if owner == r.id then
      l = { seq = seq, session = r, weight = number(weight), pooled = pooled == 'b', revoked = revoked == 'r', slots = slots, stored = true, gone = false }
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
  if l.details then return end
  local since, details = match(call('ZRANGEBYSCORE', LEASES, l.seq, l.seq)[1], ' since=(%d+) as=%S+ .-details=(.*)$')
  l.since, l.details = tonumber(since), details
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

-- Numbers of the leases of a numbered semaphore, as text: "0-3,7". The hash has those of
-- all leases in the field slots.
local slotNumbers = {} -- functions, in a table since Lua has no more than 200 locals at a time
do

-- numbersOf returns the numbers of a text, which ascend.
local function numbersOf(slots)
  local numbers = {}
  for low, high in string.gmatch(slots, '(%d+)-?(%d*)') do
    for n = tonumber(low), tonumber(high) or tonumber(low) do numbers[#numbers + 1] = n end
  end
  return numbers
end

-- textOf is the reverse, for the numbers from one index to another.
local function textOf(numbers, from, to)
  local parts = {}
  while from <= to do
    local first = from
    while from < to and numbers[from + 1] == numbers[from] + 1 do from = from + 1 end
    parts[#parts + 1] = numbers[first] .. (from > first and '-' .. numbers[from] or '')
    from = from + 1
  end
  return table.concat(parts, ',')
end

local function loadSlots()
  if slotNumbers.taken then return end
  slotNumbers.taken, slotNumbers.lowestFree = {}, 0
  for _, n in ipairs(numbersOf(call('HGET', BASE, 'slots') or '')) do slotNumbers.taken[n] = true end
end

-- take takes the lowest free numbers. There are enough below the capacity, since
-- the weight fits.
function slotNumbers.take(weight)
  loadSlots()
  local numbers = {}
  while #numbers < weight do
    if not slotNumbers.taken[slotNumbers.lowestFree] then
      slotNumbers.taken[slotNumbers.lowestFree] = true
      numbers[#numbers + 1] = slotNumbers.lowestFree
    end
    slotNumbers.lowestFree = slotNumbers.lowestFree + 1
  end
  return textOf(numbers, 1, weight)
end

function slotNumbers.free(slots)
  loadSlots()
  for _, n in ipairs(numbersOf(slots)) do
    slotNumbers.taken[n] = nil
    slotNumbers.lowestFree = min(slotNumbers.lowestFree, n)
  end
end

-- cut removes the highest numbers from a lease, as many as the weight, and returns
-- them.
function slotNumbers.cut(l, weight)
  local numbers = numbersOf(l.slots)
  local kept = #numbers - weight
  l.slots = textOf(numbers, 1, kept)
  return textOf(numbers, kept + 1, #numbers)
end

-- all returns the numbers of all leases.
function slotNumbers.all()
  local numbers = {}
  for n in pairs(slotNumbers.taken) do numbers[#numbers + 1] = n end
  table.sort(numbers)
  return textOf(numbers, 1, #numbers)
end

end

-- What a rate has granted is in a list, as "seq until weight session". Seqs and times
-- ascend.
local rates = {}
do

-- spend notes what the grant with the last Seq has cost.
function rates.spend(r, weight)
  if call('RPUSH', SPENT, seqText(lastSeq) .. ' ' .. integer(last + window) .. ' ' .. numberText(weight) .. ' ' .. r.id) == 1 then keep(SPENT) end
end

-- find returns the index of a grant, and the entry, by binary search. Seqs mostly have
-- no gaps, so that the first guess is right: as far from the last grant as their
-- Seqs are.
local function find(seq)
  local low, high, wanted = 0, call('LLEN', SPENT) - 1, tonumber(seq)
  local at = high - (lastSeq - wanted)
  while low <= high do
    at = max(low, min(at, high))
    local entry = call('LINDEX', SPENT, at)
    local found = tonumber(match(entry, '^%d+'))
    if found == wanted then return at, entry end
    if found < wanted then low = at + 1 else high = at - 1 end
    at = floor((low + high) / 2)
  end
end

-- settle corrects what a grant of a rate has cost. The excess of a grant that has
-- left the window is charged from now. Only the session that has got the grant can
-- settle it.
function rates.settle(r, ticket, seq, cost, granted)
  if kind ~= RATE or cost < 0 or granted < 0 then return refuseTicket(r, ticket, IS.INVALID) end
  cost = min(cost, max(whole, capacity))
  local at, entry = find(seq)
  if at then
    local till, weight, owner = match(entry, ' (%d+) (%d+) (%d+)$')
    if owner ~= r.id then return end
    inUse = inUse + cost - tonumber(weight)
    call('LSET', SPENT, at, seq .. ' ' .. till .. ' ' .. numberText(cost) .. ' ' .. owner)
  elseif cost > granted then
    lastSeq = lastSeq + 1
    inUse = inUse + cost - granted
    rates.spend(r, cost - granted)
  end
end

end

-- lend makes a lease for a ticket, and tells. What a rate grants is spent at once
-- and needs no lease.
local function lend(t, weight)
  lastSeq = lastSeq + 1
  inUse = inUse + weight
  local r = t.session
  local slots = ''
  if kind == RATE then
    rates.spend(r, weight)
  else
    if numbered == 1 then slots = slotNumbers.take(weight) end
    keepLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = t.pooled, revoked = false, slots = slots, since = last, details = t.details,
      stored = false, gone = false })
  end
  tell(r, IS.GRANTED, t.id, lastSeq, weight, slots)
end

-- drop frees a lease.
local function drop(l)
  local r = l.session
  inUse = inUse - l.weight
  leaseCount = leaseCount - 1
  if l.slots ~= '' then slotNumbers.free(l.slots) end
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
  if l.slots ~= '' then slotNumbers.free(slotNumbers.cut(l, weight)) end
  rewrite(l)
end

-- split parts a lease in two. The new one has a Seq of its own.
local function split(r, ticket, weight, seq)
  local l = leaseOf(r, seq)
  if not l or l.revoked or weight <= 0 or weight >= l.weight then return refuseTicket(r, ticket, IS.INVALID) end
  complete(l)
  l.weight = l.weight - weight
  local slots = l.slots == '' and '' or slotNumbers.cut(l, weight)
  rewrite(l)
  lastSeq = lastSeq + 1
  keepLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = l.pooled, revoked = false, slots = slots, since = l.since, details = l.details,
    stored = false, gone = false })
  tell(r, IS.GRANTED, ticket, lastSeq, weight, slots)
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
