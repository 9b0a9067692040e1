-- now_micros is the engine's clock. It is read after the semaphore's row is
-- locked: now() would be the time at which the transaction began to wait.
CREATE OR REPLACE FUNCTION now_micros() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- leap is a number that is higher than any that can have been given after a last
-- one, and forgotten.
CREATE OR REPLACE FUNCTION leap(last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT last + 1000000000 $$;

-- note_highest returns last_seq, or what a client has seen if that is higher and at
-- most MaxLead ahead of the clock.
CREATE OR REPLACE FUNCTION note_highest(last_seq bigint, highest bigint, last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN highest > last_seq AND highest <= greatest(last, 0) + 100000000000000 THEN highest ELSE last_seq END $$;

-- channel is where an instance hears of news. Two that share one are told of each
-- other's, which does no harm.
CREATE OR REPLACE FUNCTION channel(instance text) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS
$$ SELECT 'sema_' || to_hex(hashtextextended(current_schema() || '/' || instance, 0)) $$;

-- effective is how much may be in use: the target, or what a rise to it has
-- reached.
CREATE OR REPLACE FUNCTION effective(capacity bigint, ramp bigint, ramp_from bigint, ramp_at bigint, last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE
  WHEN ramp = 0 OR ramp_from >= capacity THEN capacity
  WHEN greatest(last - ramp_at, 0) / 1000000 > (capacity - ramp_from) / ramp THEN capacity
  ELSE least(capacity, ramp_from
    + greatest(last - ramp_at, 0) / 1000000 * ramp
    + greatest(last - ramp_at, 0) % 1000000 * ramp / 1000000)
END $$;

-- tell adds results, in order, to sessions; a ticket that had one leaves the line
-- (left 1), perhaps for a block (blocks 1). It returns how many of the sessions had
-- no block before.
CREATE OR REPLACE FUNCTION tell(
  of_semaphore bigint, sessions bigint[], kinds smallint[], tickets bigint[], leases bigint[], weights bigint[], notes text[],
  lefts integer[], blocks integer[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  begun bigint;
BEGIN
  WITH told AS (
    UPDATE session x SET
      last_result = x.last_result + a.n,
      result_n = x.result_n || ARRAY(SELECT x.last_result + i FROM generate_series(1, a.n) i),
      result_kind = x.result_kind || a.kinds, result_ticket = x.result_ticket || a.tickets, result_lease = x.result_lease || a.leases,
      result_weight = x.result_weight || a.weights, result_note = x.result_note || a.notes,
      waiting = x.waiting - a.lefts, pooled = x.pooled + a.blocks, news = x.news + 1
    FROM (
      SELECT b.*, y.at FROM (
        SELECT f.session, count(*) AS n, array_agg(f.kind) AS kinds, array_agg(f.ticket) AS tickets, array_agg(f.lease) AS leases,
          array_agg(f.weight) AS weights, array_agg(f.note) AS notes, sum(f.left_line) AS lefts, sum(f.block) AS blocks
        FROM (
          SELECT * FROM unnest(sessions, kinds, tickets, leases, weights, notes, lefts, blocks)
            WITH ORDINALITY AS o(session, kind, ticket, lease, weight, note, left_line, block, i)
          ORDER BY o.session, o.i
        ) f GROUP BY f.session
      ) b, LATERAL (SELECT z.ctid AS at FROM session z WHERE z.semaphore = of_semaphore AND z.id = b.session OFFSET 0) y -- see turn
      OFFSET 0
    ) a
    WHERE x.ctid = a.at
    RETURNING a.blocks > 0 AND x.pooled = a.blocks AS began
  )
  SELECT count(*) INTO begun FROM told WHERE told.began;
  RETURN begun;
END
$$;

-- find_oldest returns the session that was renewed longest ago, for the cache in table
-- semaphore: of which oldest is 0 if another one was seen earlier, which happens where
-- the clock has stepped back; lowest_seen is not later than any seen, now or to come.
CREATE OR REPLACE FUNCTION find_oldest(of_semaphore bigint, last bigint, OUT oldest bigint, OUT seen bigint, OUT deadline bigint, OUT lowest_seen bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT x.id, x.seen, x.deadline, min(x.seen) OVER () INTO oldest, seen, deadline, lowest_seen
    FROM session x WHERE x.semaphore = of_semaphore ORDER BY x.renewal LIMIT 1;
  lowest_seen := least(lowest_seen, last);
  IF oldest IS NULL OR seen > lowest_seen THEN
    oldest := 0;
  END IF;
END
$$;

-- end_sessions takes sessions out, with all they have, and says what that was.
CREATE OR REPLACE FUNCTION end_sessions(
  of_semaphore bigint, lowest_seq bigint, ids bigint[],
  OUT sessions bigint, OUT pools bigint, OUT recalled bigint, OUT waiting bigint, OUT wanted numeric, OUT leases bigint, OUT in_use bigint
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  WITH ended AS (
    DELETE FROM session x WHERE x.semaphore = of_semaphore AND x.id = ANY (ids) RETURNING x.pooled, x.recalled
  ), gone AS (
    DELETE FROM ticket t WHERE t.semaphore = of_semaphore AND t.session = ANY (ids) RETURNING t.least
  ), freed AS (
    DELETE FROM lease l WHERE l.semaphore = of_semaphore AND l.seq >= lowest_seq AND l.session = ANY (ids) RETURNING l.weight
  )
  SELECT
    (SELECT count(*) FROM ended),
    (SELECT count(*) FROM ended e WHERE e.pooled > 0 AND NOT e.recalled),
    (SELECT count(*) FROM ended e WHERE e.recalled),
    (SELECT count(*) FROM gone),
    (SELECT coalesce(sum(g.least), 0) FROM gone g),
    (SELECT count(*) FROM freed),
    (SELECT coalesce(sum(f.weight), 0) FROM freed f)
  INTO sessions, pools, recalled, waiting, wanted, leases, in_use;
END
$$;
