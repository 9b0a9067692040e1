-- Leases. They are members of a sorted set, as text, with their Seq as the score. They
-- are also fields of the hash, so that a batch reads those it releases at once.

local freshLeases -- leases created in this call
local droppedSeqs -- Seqs that write removes from the sorted set

-- leaseField returns the hash field of a lease: the weight, b for a block, r if revoked;
-- the session; and the slots, if any.
local function leaseField(l)
  return numberText(l.weight) .. (l.pooled and 'b' or '') .. (l.revoked and 'r ' or ' ') .. l.session.id .. (l.slots == '' and '' or ' ' .. l.slots)
end

local function leaseMember(l)
  return l.seq .. ' session=' .. l.session.id .. ' weight=' .. numberText(l.weight) .. ' since=' .. timeText(l.since) ..
    ' as=' .. (l.pooled and 'block' or 'permit') .. (l.revoked and ',revoked' or '') ..
    (l.slots == '' and '' or ' slots=' .. l.slots) .. ' details=' .. l.details
end

-- decodeLease decodes the hash field of a lease and adds the lease to its session. It
-- adds and returns false if the field is missing or the lease is another session's.
local function decodeLease(r, seq, field)
  local l = false
  if field then
    local weight, pooled, revoked, owner, slots = match(field, '^(%d+)(b?)(r?) (%d+) ?(.*)$')
    if owner == r.id then
      l = { seq = seq, session = r, weight = number(weight), pooled = pooled == 'b', revoked = revoked == 'r', slots = slots, stored = true, removed = false }
    end
  end
  r.leases[seq] = l
  return l
end

-- leaseOf returns a lease of a session, or false.
local function leaseOf(r, seq)
  local l = r.leases[seq]
  if l == nil then l = decodeLease(r, seq, call('HGET', BASE, 'L' .. seq)) end
  return l
end

-- readDetails reads since and details of a lease, which are not in its hash field.
local function readDetails(l)
  if l.details then return end
  local since, details = match(call('ZRANGEBYSCORE', LEASES, l.seq, l.seq)[1], ' since=(%d+) as=%S+ .-details=(.*)$')
  l.since, l.details = tonumber(since), details
end

local function addLease(l)
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

-- Slots are the numbers of the leases of a numbered semaphore, as text: "0-3,7". The
-- field slots of the hash contains those of all leases. slotNumbers.taken is the set of
-- those numbers, if this call has read them. No number below slotNumbers.lowestFree is
-- free.
local slotNumbers = {} -- a table of functions, since Lua allows at most 200 locals at a time
do

-- numbersOf returns the numbers of a text, in ascending order.
local function numbersOf(slots)
  local numbers = {}
  for low, high in string.gmatch(slots, '(%d+)-?(%d*)') do
    for n = tonumber(low), tonumber(high) or tonumber(low) do numbers[#numbers + 1] = n end
  end
  return numbers
end

-- textOf returns the text for numbers[from] to numbers[to].
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

-- take takes the lowest free numbers and returns them. There are enough below the
-- capacity, since the weight fits.
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

-- cut removes the highest numbers from a lease, as many as the weight, and returns them.
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

-- The grants of a rate are in a list, as "seq until weight session", in ascending order
-- of both Seqs and times.
local rates = {}
do

-- spend appends the grant with the last Seq to the list.
function rates.spend(r, weight)
  if call('RPUSH', SPENT, seqText(lastSeq) .. ' ' .. integer(last + window) .. ' ' .. numberText(weight) .. ' ' .. r.id) == 1 then keep(SPENT) end
end

-- find returns the index of a grant and its entry. It uses binary search. Seqs mostly
-- have no gaps, and then the first guess is right: the distance of the grant from the
-- end of the list is that of its Seq from the last Seq.
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

-- settle corrects the cost of a grant of a rate. The excess of a grant that has left the
-- window is charged from now. Only the session that received the grant can settle it.
function rates.settle(r, ticket, seq, cost, granted)
  if kind ~= RATE or cost < 0 or granted < 0 then return reject(r, ticket, IS.INVALID) end
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

-- grantTicket grants a ticket. A grant of a rate is spent at once and creates no lease.
local function grantTicket(t, weight)
  lastSeq = lastSeq + 1
  inUse = inUse + weight
  local r = t.session
  local slots = ''
  if kind == RATE then
    rates.spend(r, weight)
  else
    if numbered == 1 then slots = slotNumbers.take(weight) end
    addLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = t.pooled, revoked = false, slots = slots, since = last, details = t.details,
      stored = false, removed = false })
  end
  addResult(r, IS.GRANTED, t.id, lastSeq, weight, slots)
end

-- drop removes a lease.
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
    l.removed = true
  end
  if l.pooled then
    r.pooled = r.pooled - 1
    notePool(r, r.pooled + 1)
  end
end

-- rewriteLease stores a lease that has changed.
local function rewriteLease(l)
  if not l.stored then return end -- write will store it
  readDetails(l)
  call('ZREMRANGEBYSCORE', LEASES, l.seq, l.seq)
  call('ZADD', LEASES, l.seq, leaseMember(l))
  if leaseCount == 1 then keep(LEASES) end -- the key was removed and created again, without an expiry
  call('HSET', BASE, 'L' .. l.seq, leaseField(l))
end

-- release releases part of a lease, or all of it if weight is 0. A missing lease was
-- released before.
local function release(r, seq, weight)
  local l = leaseOf(r, seq)
  if not l or weight < 0 then return end
  if weight == 0 or weight >= l.weight then return drop(l) end
  l.weight = l.weight - weight
  inUse = inUse - weight
  if l.slots ~= '' then slotNumbers.free(slotNumbers.cut(l, weight)) end
  rewriteLease(l)
end

-- split splits a lease in two. The new lease has its own Seq.
local function split(r, ticket, weight, seq)
  local l = leaseOf(r, seq)
  if not l or l.revoked or weight <= 0 or weight >= l.weight then return reject(r, ticket, IS.INVALID) end
  readDetails(l)
  l.weight = l.weight - weight
  local slots = l.slots == '' and '' or slotNumbers.cut(l, weight)
  rewriteLease(l)
  lastSeq = lastSeq + 1
  addLease({ seq = seqText(lastSeq), session = r, weight = weight, pooled = l.pooled, revoked = false, slots = slots, since = l.since, details = l.details,
    stored = false, removed = false })
  addResult(r, IS.GRANTED, ticket, lastSeq, weight, slots)
end

-- acknowledge removes the results that the session has received. It releases each lease
-- whose revocation was received.
local function acknowledge(r, upTo)
  if r.unacknowledged == 0 then return end
  if upTo >= r.lastResult and r.revocations == 0 then -- the usual case: no result has to be read
    r.newResults, r.unacknowledged, r.results = {}, 0, ''
    return
  end
  filterResults(r, function(n, why, ticket, lease)
    if n > upTo then return true end
    if why == IS.REVOKED then release(r, seqText(lease), 0) end
    return false
  end)
end
