-- Batches and the answers to them, as packBatch and unpackReply have them.

local STATUS = { APPLIED = 0, REPEATED = 1, STALE = 2, UNKNOWN = 3 }

-- BATCH is how a batch begins: the server that was seen, the promotion bound, the
-- session, its owner, seq, ack, the highest Seq that was seen, bye; for a plain batch, see there, how many ranges of leases
-- it releases, or -1, and how much it acquires; and a letter for each wish. Then
-- come those ranges, and what the letters do not say.
-- RUN is acquires that are alike: how many, the first ticket, of which the next
-- ones are each one more, and what all of them want. Then comes for how long they
-- wait, if any does.
-- HEAD is how an answer begins, before the configuration, the results and their fences.
local BATCH, RUN, HEAD = '<ddI4c0I4c0ddddddI4c0', '<dI4c0ddddI4c0', '<ddddddddddd'

local MAX_FENCED = 4096

-- gapless is the fences of grants if there is nothing to tell: all Seqs from the
-- lowest to the last are live, or there are too many.
local function gapless()
  local exact = leaseCount <= MAX_FENCED and 1 or 0
  if leaseCount > 0 and exact == 1 and leaseCount ~= lastSeq - lowest + 1 then return nil end
  return pack('<dddd', exact, lowest, 0, 0)
end

-- fences are for the results that are grants, in order: the lowest live Seq, the
-- ranges of Seqs above it that are not live, and for each grant how many of those
-- there are up to it, and where another one begins that ends just before it. The
-- leases are gone through once for all of them.
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
  local gone, marks, expected, i = {}, {}, lowest, 1
  local score = live[1] and tonumber(numberIn(live[1]))
  for _, seq in ipairs(seqs) do
    local tail, upTo = 0, 0
    if expected <= seq then
      while score and score <= seq do
        if score > expected then gone[#gone + 1] = pack('<dd', expected, score - 1) end
        expected = score + 1
        i = i + 1
        score = live[i] and tonumber(numberIn(live[i]))
      end
      upTo = #gone
      if expected < seq then tail = expected end -- its own lease is gone, and so is what came just before
    end
    marks[#marks + 1] = pack('<dd', upTo, tail)
  end
  return pack('<dddd', 1, lowest, #gone, #marks) .. table.concat(gone) .. table.concat(marks)
end
