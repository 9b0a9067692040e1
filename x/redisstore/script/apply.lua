-- The entry point for Store.Apply.

local function bit(flags, n) return floor(flags / n) % 2 == 1 end

-- acquire queues a ticket, or rejects it.
local function acquire(r, ticket, weight, least, wait, flags, details)
  if ticketOf(r, ticket) then return end -- queued before
  grant() -- tickets before this one take what the batch has freed so far
  local try, pooled = bit(flags, 1), bit(flags, 2)
  if not pooled or least <= 0 then least = weight else least = min(least, weight) end
  local free = waiting == 0 and fits(least)
  if weight <= 0 or pooled and numbered == 1 then return reject(r, ticket, IS.INVALID) end
  if draining == 1 then return reject(r, ticket, IS.DRAINING) end
  if tooLarge(least) then return reject(r, ticket, IS.TOO_LARGE) end
  if not free then
    if try then return reject(r, ticket, clock < hold and IS.UNDECIDED or IS.FULL) end
    if maxWaiters ~= 0 and waiting >= maxWaiters then return reject(r, ticket, IS.QUEUE_FULL) end
  end
  enqueue({ id = ticket, session = r, weight = weight, least = least, till = wait > 0 and clock + wait or 0, pooled = pooled, since = last, details = details,
    arrival = 0, stored = false, removed = false })
end

-- cancel cancels an acquire: it removes the ticket, releases the lease, or refunds the grant
-- of a rate.
local function cancel(r, ticket)
  local t = ticketOf(r, ticket)
  if t then return dequeue(t) end
  if r.unacknowledged == 0 then return end
  local found, granted = false, nil
  filterResults(r, function(_, why, of, lease)
    if found or of ~= ticket or why == IS.REVOKED then return true end
    found = true
    if why == IS.GRANTED then granted = lease end
    return false
  end)
  if not granted then return end
  if kind == RATE then return rates.settle(r, ticket, seqText(granted), 0, 0) end
  release(r, seqText(granted), 0)
end

-- continues reports whether a session of an earlier run of the server, whose last writes
-- may be missing here, has lost nothing: it has received no reply to a batch and no
-- result that are unknown here. Otherwise other sessions may be granted what it holds.
local function continues(r, seq, ack)
  local before = r.before >= 0 and r.before or r.lastResult
  return seq <= r.seq or seq == r.seq + 1 and ack <= before
end

-- applyOps applies the ops of a batch, in order.
local function applyOps(r, order, at, args)
  local leases = 3 -- index in args of the last lease that was released
  local taken, count, ticket, weight, least, flags, timed, details, waits = 0, 0
  for i = 1, #order do
    local op = sub(order, i, i)
    if op == 'a' then
      if taken == count then
        count, ticket, weight, least, flags, timed, details, waits = read(RUN, REQUEST, at)
        taken, at = 0, waits + timed * count * 8
      end
      local wait = timed == 1 and read('<d', REQUEST, waits + taken * 8) or 0
      acquire(r, ticketAfter(ticket, taken), weight, least, wait, flags, details)
      taken = taken + 1
    elseif op == 'r' then
      leases = leases + 1
      release(r, sub(args[leases], 2), 0)
    else
      local name, of, much
      name, of, much, at = read('<I4c0I4c0d', REQUEST, at)
      if op == 'p' then
        release(r, name, much)
      elseif op == 'c' then
        cancel(r, name)
      elseif op == 's' then
        split(r, name, much, of)
      elseif op == 't' then
        local granted
        granted, at = read('<d', REQUEST, at)
        rates.settle(r, name, of, much, granted)
      else
        reject(r, name, IS.INVALID)
      end
    end
  end
end

-- applyBatch applies a batch, unless it was applied before, and returns the status.
local function applyBatch(r, seq, ack, ends, order, at, args)
  if r.epoch ~= epoch and not continues(r, seq, ack) then
    endSession(r)
    return STATUS.UNKNOWN
  end
  if seq < r.seq then return STATUS.STALE end
  if seq == r.seq then return STATUS.REPEATED end
  r.seq = seq
  renew(r)
  acknowledge(r, ack)
  if ends == 1 then
    endSession(r)
  else
    applyOps(r, order, at, args)
  end
  return STATUS.APPLIED
end

-- nextBatch returns how long a session may wait before it has to send a batch in addition
-- to its heartbeats; 0 if it need not send one.
local function nextBatch(r, gapped)
  if r.waits == 0 then return 0 end
  local isFirst = first().session == r
  if not isFirst and not gapped then return 0 end
  local sixth = floor(ttl / 6)
  local within = isFirst and due()
  return within and max(1, min(sixth, within)) or sixth
end

-- replyTo writes the changes of the call and returns the reply to a session.
local function replyTo(r, status, gapped)
  local recalled = r.pooled > 0 and recalls(r)
  if r.recalled == 1 and not recalled then noteRecalled(r, false) end -- this reply withdraws the recall, so the next one needs a notification
  local share = 0
  if recalled and draining == 0 and firstLeast() <= evenShare() then share = evenShare() end
  local head = pack(HEAD, epoch, inUse, r.unacknowledged, status, more and 1 or 0, wanted, firstLeast(), nextBatch(r, gapped), recalled and 1 or 0, share,
    undecided())
  local results = r.unacknowledged > 0 and resultsOf(r) or ''
  write(status == STATUS.APPLIED and r.id)
  return head .. configured .. results .. (r.unacknowledged > 0 and fences(results) or '')
end

function apply(keys, args)
  start(keys, args)
  local seen, promotion, id, owner, seq, ack, highest, ends, ranges, wants, order, at = read(BATCH, REQUEST)
  if cutOff(promotion) then return redis.error_reply(CUT_OFF) end
  -- One command reads the semaphore, the session and the leases that the batch releases.
  local field = fieldOf(id)
  local stored = call('HMGET', BASE, STATE, field, unpack(args, 4, min(#args, 1003)))
  local exists, failed = load(stored[1], seen, promotion)
  if failed then return failed end
  if not exists then
    remember(highest)
    return pack(HEAD, runEpoch, 0, 0, STATUS.UNKNOWN, 0, 0, 0, 0, 0, 0, 0)
  end
  local record = stored[2]
  local reply = ranges >= 0 and record and plain(id, owner, field, stored, args, seq, ack, highest, ranges, wants, order, at)
  if reply then return reply end

  resetCall()
  local gapped = now - last > floor(ttl / 6)
  sessions[id] = record and decodeSession(id, record)
  begin()
  local r = sessions[id]
  local status = STATUS.UNKNOWN
  if r and r.owner == owner and not expired(r) then -- an expired session may not have been ended yet
    noteHighest(highest)
    for i = 3, #stored do
      local name = sub(args[i + 1], 2)
      if r.leases[name] == nil then decodeLease(r, name, stored[i]) end
    end
    status = applyBatch(r, seq, ack, ends, order, at + max(ranges, 0) * 16, args)
  elseif clock < hold then
    noteHighest(highest) -- the session of this client may have been lost
  end
  settle()
  if status == STATUS.UNKNOWN or ends == 1 and status == STATUS.APPLIED then
    reply = pack(HEAD, epoch, inUse, 0, status, more and 1 or 0, wanted, firstLeast(), 0, 0, 0, undecided()) .. configured
    write(nil)
    return reply
  end
  return replyTo(r, status, gapped)
end
