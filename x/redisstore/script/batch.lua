-- The formats of batches and replies, as in packBatch and unpackReply.

local STATUS = { APPLIED = 0, REPEATED = 1, STALE = 2, UNKNOWN = 3 }

-- BATCH is the head of a batch: the last epoch that the client has received, the
-- promotion bound, the session, its owner, seq, ack, the highest Seq, whether the session
-- ends; the number of ranges of leases that it releases, or -1 if the batch cannot be
-- plain; the weight that it acquires; and a letter for each op. The ranges and the
-- arguments of the ops follow.
-- RUN is a run of equal acquires: their number, the first ticket, and the fields that are
-- equal. Each further ticket is one more than the ticket before. The waits of the acquires
-- follow if any op has one.
-- HEAD is the head of a reply. The configuration, the results and their fences follow.
local BATCH, RUN, HEAD = '<ddI4c0I4c0ddddddI4c0', '<dI4c0ddddI4c0', '<ddddddddddd'

local MAX_FENCED = 4096

-- gapless returns 1 if the fences of grants are exact and contain no ranges, because all Seqs
-- from the lowest to the last are live; 0 if there are too many leases for exact fences;
-- otherwise nil.
local function gapless()
  if leaseCount > MAX_FENCED then return 0 end
  return (leaseCount == 0 or leaseCount == lastSeq - lowest + 1) and 1 or nil
end

-- fences returns the fences of the grants among the results, in order: the lowest live
-- Seq; the ranges of Seqs above it that are not live; and for each grant the number of
-- ranges up to it, and the start of a further range that ends just before it, or 0. It
-- reads the leases once for all grants.
local function fences(all)
  local seqs, at = {}, 1
  while at <= #all do
    local _, why, lease, count
    _, why, lease, _, count, _, _, at = read(RESULT, all, at)
    if why == IS.GRANTED then
      for i = 0, count - 1 do seqs[#seqs + 1] = lease + i end
    end
  end
  if #seqs == 0 then return '' end
  local exact = gapless()
  if exact then return pack('<dddd', exact, lowest, 0, 0) end
  -- With many leases, reading them all takes most of the call: 0.2 ms for a thousand. They are
  -- mostly a few runs, whose ends are found by counting. That needs all grants to be the newest
  -- leases, and gives up after some counts.
  if leaseCount > 48 and seqs[#seqs] == lastSeq and seqs[#seqs] - seqs[1] + 1 == #seqs then
    local gaps, counts = {}, min(40, floor(leaseCount / 4))
    local function search(from, to) -- appends the ranges without leases, in order
      counts = counts - 1
      if counts < 0 then return end
      local n = call('ZCOUNT', LEASES, seqText(from), seqText(to))
      if n == 0 then
        local before = gaps[#gaps]
        if before and before[2] == from - 1 then before[2] = to else gaps[#gaps + 1] = { from, to } end
      elseif n <= to - from then
        local middle = floor((from + to) / 2)
        search(from, middle)
        search(middle + 1, to)
      end
    end
    search(lowest, seqs[1] - 1)
    if counts >= 0 then
      local removed, mark = {}, pack('<dd', #gaps, 0)
      for i, gap in ipairs(gaps) do removed[i] = pack('<dd', gap[1], gap[2]) end
      return pack('<dddd', 1, lowest, #gaps, #seqs) .. table.concat(removed) .. string.rep(mark, #seqs)
    end
  end
  local live = call('ZRANGEBYSCORE', LEASES, lowest, seqs[#seqs])
  local removed, marks, expected, i = {}, {}, lowest, 1
  local score = live[1] and tonumber(numberIn(live[1]))
  for _, seq in ipairs(seqs) do
    local tail, upTo = 0, 0
    if expected <= seq then
      while score and score <= seq do
        if score > expected then removed[#removed + 1] = pack('<dd', expected, score - 1) end
        expected = score + 1
        i = i + 1
        score = live[i] and tonumber(numberIn(live[i]))
      end
      upTo = #removed
      if expected < seq then tail = expected end -- the lease of this grant and those just before it are gone
    end
    marks[#marks + 1] = pack('<dd', upTo, tail)
  end
  return pack('<dddd', 1, lowest, #removed, #marks) .. table.concat(removed) .. table.concat(marks)
end
