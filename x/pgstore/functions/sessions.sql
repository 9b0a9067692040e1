-- channel returns the channel on which an instance is notified. Two instances may
-- share one: each ignores what is not its own.
CREATE OR REPLACE FUNCTION channel(instance text) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS
$$ SELECT 'sema_' || to_hex(hashtextextended(current_schema() || '/' || instance, 0)) $$;

-- pending_notifications returns the sessions of an instance that were notified since
-- their last reply, with a count by which new notifications differ from earlier ones.
CREATE OR REPLACE FUNCTION pending_notifications(p_instance text, OUT r_name text, OUT r_session bigint, OUT r_notifications bigint) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT s.name, x.id, x.notifications FROM session x JOIN semaphore s ON s.id = x.semaphore
  WHERE x.instance = p_instance AND x.notifications > x.delivered
$$;

-- add_results appends results, in order, to sessions. With each, a ticket may leave the
-- queue (dequeued 1) and a pooled lease may be granted (blocks 1). It returns how many
-- of the sessions had no pooled lease before.
CREATE OR REPLACE FUNCTION add_results(
  of_semaphore bigint, sessions bigint[], kinds smallint[], tickets bigint[], leases bigint[], weights bigint[], texts text[],
  dequeued integer[], blocks integer[]
) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  first_blocks bigint;
BEGIN
  WITH changed AS (
    UPDATE session x SET
      last_result = x.last_result + a.n,
      result_n = x.result_n || ARRAY(SELECT x.last_result + i FROM generate_series(1, a.n) i),
      result_kind = x.result_kind || a.kinds, result_ticket = x.result_ticket || a.tickets, result_lease = x.result_lease || a.leases,
      result_weight = x.result_weight || a.weights, result_text = x.result_text || a.texts,
      waiting = x.waiting - a.dequeued, pooled = x.pooled + a.blocks, notifications = x.notifications + 1
    FROM (
      SELECT b.*, y.at FROM (
        SELECT f.session, count(*) AS n, array_agg(f.kind) AS kinds, array_agg(f.ticket) AS tickets, array_agg(f.lease) AS leases,
          array_agg(f.weight) AS weights, array_agg(f.result_text) AS texts, sum(f.dequeued) AS dequeued, sum(f.block) AS blocks
        FROM (
          SELECT * FROM unnest(sessions, kinds, tickets, leases, weights, texts, dequeued, blocks)
            WITH ORDINALITY AS o(session, kind, ticket, lease, weight, result_text, dequeued, block, i)
          ORDER BY o.session, o.i
        ) f GROUP BY f.session
      ) b, LATERAL (SELECT z.ctid AS at FROM session z WHERE z.semaphore = of_semaphore AND z.id = b.session OFFSET 0) y -- see apply_batch
      OFFSET 0
    ) a
    WHERE x.ctid = a.at
    RETURNING a.blocks > 0 AND x.pooled = a.blocks AS is_first
  )
  SELECT count(*) INTO first_blocks FROM changed WHERE changed.is_first;
  RETURN first_blocks;
END
$$;

-- find_oldest returns the session that was renewed longest ago, for the cache in table
-- semaphore. It returns oldest 0 if another session has an earlier time of renewal,
-- which happens after the clock has stepped back. lowest_renewed is not later than the
-- time of any renewal, now or later.
CREATE OR REPLACE FUNCTION find_oldest(of_semaphore bigint, last bigint, OUT oldest bigint, OUT renewed bigint, OUT deadline bigint, OUT lowest_renewed bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT x.id, x.renewed, x.deadline, min(x.renewed) OVER () INTO oldest, renewed, deadline, lowest_renewed
    FROM session x WHERE x.semaphore = of_semaphore ORDER BY x.renewal LIMIT 1;
  lowest_renewed := least(lowest_renewed, last);
  IF oldest IS NULL OR renewed > lowest_renewed THEN
    oldest := 0;
  END IF;
END
$$;

-- end_sessions deletes sessions with their leases and tickets, and returns the sums of
-- what it deleted.
CREATE OR REPLACE FUNCTION end_sessions(
  of_semaphore bigint, lowest_seq bigint, ids bigint[],
  OUT sessions bigint, OUT pools bigint, OUT recalled bigint, OUT waiting bigint, OUT wanted numeric, OUT leases bigint, OUT in_use bigint, OUT slots text
) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  WITH ended AS (
    DELETE FROM session x WHERE x.semaphore = of_semaphore AND x.id = ANY (ids) RETURNING x.pooled, x.recalled
  ), cancelled AS (
    DELETE FROM ticket t WHERE t.semaphore = of_semaphore AND t.session = ANY (ids) RETURNING t.least
  ), freed AS (
    DELETE FROM lease l WHERE l.semaphore = of_semaphore AND l.seq >= lowest_seq AND l.session = ANY (ids) RETURNING l.weight, l.slots
  )
  SELECT
    (SELECT count(*) FROM ended),
    (SELECT count(*) FROM ended e WHERE e.pooled > 0 AND NOT e.recalled),
    (SELECT count(*) FROM ended e WHERE e.recalled),
    (SELECT count(*) FROM cancelled),
    (SELECT coalesce(sum(c.least), 0) FROM cancelled c),
    (SELECT count(*) FROM freed),
    (SELECT coalesce(sum(f.weight), 0) FROM freed f),
    (SELECT string_agg(f.slots, ',') FROM freed f WHERE f.slots <> '')
  INTO sessions, pools, recalled, waiting, wanted, leases, in_use, slots;
END
$$;
