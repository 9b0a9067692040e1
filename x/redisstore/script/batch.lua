-- The formats of batches and replies, as in packBatch and unpackReply.

local STATUS = { APPLIED = 0, REPEATED = 1, STALE = 2, UNKNOWN = 3 }

-- BATCH is the head of a batch: the epoch that the client has got, the promotion bound,
-- the session, its owner, seq, ack, the highest Seq, whether the session ends; for a
-- batch that may be plain how many ranges of leases it releases, or -1, and how much it
-- acquires; and a letter for each op. Then come those ranges, and the rest of the ops.
-- RUN is a run of equal acquires: how many, the first ticket, of which the next ones are
-- each one more, and the fields that are equal. Then come their waits, if any op has
-- one.
-- HEAD is the head of a reply, before the configuration, the results and their fences.
local BATCH, RUN, HEAD = '<ddI4c0I4c0ddddddI4c0', '<dI4c0ddddI4c0', '<ddddddddddd'

local MAX_FENCED = 4096

-- gapless returns the fences of grants if no Seq is missing: all from the lowest to the
-- last are live, or there are too many.
local function gapless()
  local exact = leaseCount <= MAX_FENCED and 1 or 0
  if leaseCount > 0 and exact == 1 and leaseCount ~= lastSeq - lowest + 1 then return nil end
  return pack('<dddd', exact, lowest, 0, 0)
end

-- fences returns those of the results that are grants, in order: the lowest live Seq,
-- the ranges of Seqs above it that are not live, and for each grant how many of those
-- ranges there are up to it, and where another one begins that ends just before it. It
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
  local nothing = gapless()
  if nothing then return nothing end
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
      if expected < seq then tail = expected end -- its own lease is gone, and so are those just before
    end
    marks[#marks + 1] = pack('<dd', upTo, tail)
  end
  return pack('<dddd', 1, lowest, #removed, #marks) .. table.concat(removed) .. table.concat(marks)
end
