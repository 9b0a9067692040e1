-- The entry point for all operations but Store.Apply. A request begins with the name of
-- the operation, a reply with the epoch of the server and the status.

local DONE, ABSENT, REJECTED, CONFLICT, FIXED, RAISED = 0, 1, 2, 3, 4, 5

-- describe writes the configuration, both packed for the script and as text.
local function describe()
  call('HSET', BASE, 'config', configured, 'kind', kind == RATE and 'rate' or 'concurrency', 'capacity', integer(capacity),
    'whole', integer(whole), 'ramp', integer(ramp), 'maxwaiters', integer(maxWaiters), 'ttl', integer(ttl), 'window', integer(window),
    'numbered', numbered == 1 and 'yes' or 'no', 'draining', draining == 1 and 'yes' or 'no', 'version', integer(version), 'protocol', integer(protocol))
end

-- addName adds the semaphore to the index of names. If the semaphore is new, addName also
-- checks up to eight names and removes the stale ones: the name of an unused semaphore
-- remains when its keys expire.
local function addName(names, new)
  call('ZADD', names, 0, NAME)
  if not new then return end
  local from = now % call('ZCARD', names)
  for _, name in ipairs(call('ZRANGE', names, from, from + 7)) do
    if call('EXISTS', sub(BASE, 1, #BASE - #NAME - 1) .. name .. '}') == 0 then call('ZREM', names, name) end
  end
end

-- open opens a session. It creates a missing semaphore if the request allows it.
local function open(exists, at, promotion)
  local create, clientProtocol, instance, client, owner, highest, names, config
  create, clientProtocol, instance, client, owner, highest, names, config = read('<ddI4c0I4c0I4c0dI4c0I4c0', REQUEST, at)
  if not exists then
    if create == 0 then return pack('<dd', runEpoch, ABSENT) end
    initialize(config, promotion)
    describe()
  end
  begin()
  if clientProtocol + 1 < protocol or clientProtocol > protocol + 1 then
    write(nil)
    return pack('<dd', epoch, REJECTED) .. configured
  end
  noteHighest(highest)
  lastSession = lastSession + 1
  local id = format('%.0f', lastSession)
  local r = rests.new(id, owner, instance, client)
  sessions[id] = r
  renew(r)
  sessionCount = sessionCount + 1
  write(nil)
  if names ~= '' then addName(names, not exists) end
  if sessionCount == 1 then keep(SESSIONS) end
  return pack('<ddd', epoch, DONE, lastSession) .. configured
end

-- persist removes the expiry of the keys, for a semaphore that an administrator has
-- configured.
local function persist()
  for _, key in ipairs(allKeys()) do call('PERSIST', key) end
end

-- rejectQueue rejects the tickets that cannot be granted under the new configuration.
local function rejectQueue()
  local kept = {}
  local t = first()
  while t do
    local why = draining == 1 and IS.DRAINING or tooLarge(t.least) and IS.TOO_LARGE
    if why then
      rejectQueued(t, why)
    else -- marked as removed for now, so that first returns the next one
      kept[#kept + 1] = t
      t.removed = true
      waiting = waiting - 1
    end
    t = first()
  end
  for i, k in ipairs(kept) do
    k.removed = nil
    fetched[i] = k.arrival
  end
  for i = #kept + 1, #fetched do fetched[i] = nil end
  fetchedAt, waiting = 1, waiting + #kept
end

local function configure(at)
  local valid, wants, config
  valid, wants, config = read('<ddI4c0', REQUEST, at)
  begin()
  local was = { ttl, kind, window, numbered, protocol }
  local status = DONE
  if valid == 0 then
    status = REJECTED
  elseif wants ~= version then
    status = CONFLICT
  else
    local present = configured
    local from = effective()
    loadConfig(config)
    if ttl ~= was[1] or kind ~= was[2] or window ~= was[3] or numbered ~= was[4] then status = FIXED end
    if status == DONE and (protocol < was[5] or protocol > was[5] + 1) then status = RAISED end
    if status == DONE then
      rampFrom, rampAt = min(from, capacity), last
      notifiedFirst = 0
      describe()
      persist()
      rejectQueue()
      settle()
    else
      loadConfig(present)
    end
  end
  write(nil)
  return pack('<dd', epoch, status) .. configured
end

-- leaseBy returns the lease with a Seq, or false.
local function leaseBy(seq)
  for _, l in ipairs(freshLeases) do
    if l.seq == seq then return not l.removed and l end
  end
  local member = call('ZRANGEBYSCORE', LEASES, seq, seq)[1]
  local r = member and session(match(member, ' session=(%d+)'))
  return r and leaseOf(r, seq)
end

local function revoke(at)
  local seq, atOnce, note
  seq, atOnce, note = read('<I4c0dI4c0', REQUEST, at)
  begin()
  local l = leaseBy(seq)
  if l then
    if not l.revoked then
      l.revoked = true
      rewriteLease(l)
      l.session.revocations = l.session.revocations + 1
      addResult(l.session, IS.REVOKED, '0', tonumber(seq), 0, note)
    end
    if atOnce == 1 then drop(l) end
    settle()
  end
  write(nil)
  return pack('<dd', epoch, l and DONE or REJECTED)
end

local function inspect()
  begin()
  write(nil)
  local renewed, owners, clients, members = {}, {}, {}, call('ZRANGE', SESSIONS, 0, -1)
  for i, member in ipairs(members) do
    local r = session(numberIn(member))
    renewed[i], owners[i], clients[i] = format('%.0f', r.renewed), r.owner, r.client
  end
  return {
    pack('<dddd', epoch, DONE, effective(), inUse) .. configured, members, renewed, owners, clients,
    call('ZRANGE', LEASES, 0, -1), call('ZRANGE', QUEUE, 0, -1),
  }
end

-- delete removes the semaphore if its configuration has the requested version, or if the
-- requested version is 0. It also removes a semaphore of an unreleased layout, which
-- needs no tombstone: the next semaphore starts ahead of the clock, see LEAP.
local function delete(at, failed)
  local wants, names
  wants, names = read('<dI4c0', REQUEST, at)
  if failed and not (wants == 0 and unreleased()) then return failed end
  if wants ~= 0 and wants ~= version then return pack('<dd', runEpoch, CONFLICT) .. configured end
  call('DEL', unpack(allKeys()))
  if failed then call('DEL', BASE .. ':line') else leaveTombstone(max(lastSeq, lastSession)) end
  if names ~= '' then call('ZREM', names, NAME) end
  return pack('<dd', runEpoch, DONE)
end

function administer(keys, args)
  start(keys, args)
  resetCall()
  local what, seen, promotion, at = read('<I4c0dd', REQUEST)
  if cutOff(promotion) then return redis.error_reply(CUT_OFF) end
  local exists, failed = load(call('HGET', BASE, STATE), seen, promotion)
  if failed then return what == 'delete' and delete(at, failed) or failed end
  if what == 'open' then return open(exists, at, promotion) end
  if not exists then return pack('<dd', runEpoch, ABSENT) end
  if what == 'configure' then return configure(at) end
  if what == 'revoke' then return revoke(at) end
  if what == 'inspect' then return inspect() end
  return delete(at)
end
