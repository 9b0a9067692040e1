-- apply_batch does what protocol.State.Apply does: it advances the clocks, applies the
-- batch of one session and serves the queue. It is the model in another language, and
-- fleettest compares the two; the comments name the functions of the model.
--
-- The common cases work on variables and write in bulk: releases, and acquires that fit
-- while the queue is empty, are not written one by one. Waiters are in table ticket, whose
-- head is read in portions (the window, variables l_…).
-- Changes of the caller's own session (me) are kept in variables to the end. Results
-- for other sessions are collected and written when the queue is served.
--
-- Numbers are those of fleet/protocol. Verbs: 1 acquire, 2 cancel, 3 release, 4 split,
-- 5 settle. Results: 1 granted, 2 full, 3 queue full, 4 too large, 5 draining,
-- 6 timed out, 7 revoked, 8 invalid. Statuses: 0 applied, 1 repeated, 2 stale,
-- 3 unknown. (They are not constants, and arrays begin as null, because each expression
-- that is evaluated costs a microsecond in every transaction.)
--
-- Without a session (p_session 0) only time passes. With p_begin false not even that
-- happens: the queue is served after an administrator's change.
CREATE OR REPLACE FUNCTION apply_batch(
  p_name text, p_session bigint,
  p_key uuid, p_principal text, -- the owner
  p_highest bigint, -- see note_highest
  p_seq bigint, p_ack bigint, p_end boolean,
  p_verb smallint[], p_ticket bigint[], p_weight bigint[], p_least bigint[], p_wait bigint[], p_try boolean[], p_pooled boolean[], p_details text[],
  p_named bigint[], -- the leases that are named by ops, each once
  p_which integer[], -- which of them, for each op; 0: none
  p_twice boolean, -- two acquires have the same ticket
  p_plain bigint, -- if all ops are whole releases and acquires that are not pooled: the sum of the acquired weights; else -1
  p_most bigint, -- and the highest of the acquired weights; 0 if one is a try
  p_begin boolean,
  OUT r_status smallint, OUT r_more boolean, OUT r_next bigint, OUT r_recall boolean, OUT r_in_use bigint, OUT r_wanted bigint, OUT r_first bigint,
  OUT r_share bigint, OUT r_undecided bigint,
  OUT r_config bigint[], -- kind, capacity, whole, ramp, max_waiters, ttl, period, draining, version, protocol, numbered
  OUT r_result_n bigint[], OUT r_result_kind smallint[], OUT r_result_ticket bigint[], OUT r_result_lease bigint[], OUT r_result_weight bigint[],
  OUT r_result_text text[], -- granted: the slots; revoked: the note
  OUT r_exact boolean, OUT r_floor bigint, OUT r_top bigint, -- the lowest and the highest live seq, up to the last in the results; 0: there is none
  OUT r_gone_from bigint[], OUT r_gone_to bigint[] -- the ranges between them that are not live
) LANGUAGE plpgsql VOLATILE
  -- Tables whose rows are inserted and deleted all the time have no useful statistics.
  -- The plan that is wanted is always the same: rows that are named, by primary key, one
  -- by one. For a join with a list of keys, or = ANY, the planner would read all index
  -- entries of the semaphore. It expects few, and most are of deleted rows. LATERAL and
  -- OFFSET 0 prevent that plan.
  SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off
AS $$
DECLARE

  s semaphore%ROWTYPE;
  now_us bigint; gap bigint := 0;
  eff bigint; -- effective
  whole bigint; -- the largest weight that is not too large
  expired boolean := false; -- there are expired sessions that were not ended
  ids bigint[]; e record;

  me session%ROWTYPE; -- the session of the batch, if it has not expired
  mine boolean := false; -- there is one
  own bigint := 0; -- its id
  woken boolean := false; -- it is to be notified, unless the reply has it all
  f_n bigint[]; f_kind smallint[]; f_ticket bigint[]; f_lease bigint[]; f_weight bigint[]; f_text text[];
  holes boolean := false; -- there are results of kind 0, which were cancelled

  n integer := cardinality(p_verb);
  i integer := 0; j integer; k integer;
  simple boolean; -- an acquire that fits can be granted at once
  twice boolean := false; there boolean := false; -- a ticket may be named twice; it is
  kind smallint; -- of a result
  w bigint; least_ bigint; fits boolean; place_ bigint; until_ bigint; since_ bigint; details_ text;
  slots_ text := ''; freed_ text; -- slots that are granted; that are free again

  h_place bigint; h_session bigint; h_least bigint; h_until bigint; -- the first ticket in the queue; null: to be looked up
  l_place bigint[]; l_session bigint[]; l_ticket bigint[]; l_weight bigint[]; l_least bigint[]; l_until bigint[]; l_pooled boolean[];
  l_details text[]; l_deadline bigint[]; -- the window
  l_n integer := 0; head integer := 1;
  served bigint; -- as in the table; s.served runs ahead
  due bigint;

  t_weight bigint[]; t_pooled boolean[]; t_revoked boolean[]; t_slots text[]; t_before bigint[]; -- the leases that are named
  touched boolean := false; parted boolean := false; -- some of them are released; in part

  g_seq bigint[]; g_session bigint[]; g_weight bigint[]; g_since bigint[]; g_pooled boolean[]; g_details text[];
  g_slots text[]; -- new leases; null: not numbered
  x_seq bigint[]; x_session bigint[]; x_weight bigint[]; -- new spending
  o_session bigint[]; o_kind smallint[]; o_ticket bigint[]; o_lease bigint[]; o_weight bigint[]; o_text text[];
  o_dequeued integer[]; o_block integer[]; -- results for other sessions; text null: not numbered
  w_ids bigint[]; -- other sessions that are to be notified
BEGIN
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    RETURN; -- with nulls
  END IF;
  served := s.served;
  h_place := s.first_place; h_session := s.first_session; h_least := s.first_least; h_until := s.first_until;
  whole := greatest(s.whole, s.capacity);
  eff := effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last);
  r_more := false;

  -- State.begin: advance the clocks and end expired sessions.
  IF p_begin THEN
    now_us := now_micros();
    gap := now_us - s.last;
    IF gap < 0 THEN -- shorten
      IF s.kind = 1 THEN
        UPDATE spending x SET until = now_us + s.period WHERE x.semaphore = s.id AND x.seq >= s.floor AND x.until > now_us + s.period;
      END IF;
      s.ramp_from := eff; s.ramp_at := now_us;
      s.oldest := 0; s.oldest_renewed := least(s.oldest_renewed, now_us); -- the next renewal is an earlier one
    END IF;
    s.clock := s.clock + least(greatest(gap, 0), s.ttl / 6);
    s.last := now_us;
    IF s.server_started <> pg_postmaster_start_time() THEN
      -- The server was restarted, or a standby was promoted, and commits may be lost
      -- that replies have reported. New numbers skip theirs, and sessions that have
      -- such a reply are rejected below.
      s.server_started := pg_postmaster_start_time();
      s.server_renewals := s.renewals;
      s.last_seq := greatest(skip_numbers(s.last_seq), now_us); s.last_session := greatest(skip_numbers(s.last_session), now_us);
    END IF;
    IF s.kind = 1 THEN -- expire
      -- Seqs ascend with until, and there is no row below the floor: neither rows that
      -- count nor deleted ones are read.
      WITH past AS (
        DELETE FROM spending x WHERE x.semaphore = s.id AND x.seq >= s.floor AND x.seq < coalesce(
          (SELECT y.seq FROM spending y WHERE y.semaphore = s.id AND y.seq >= s.floor AND y.until > now_us ORDER BY y.seq LIMIT 1), 9223372036854775807)
        RETURNING x.seq, x.weight
      )
        SELECT s.in_use - coalesce(sum(x.weight), 0), greatest(s.floor, max(x.seq) + 1) INTO s.in_use, s.floor FROM past x;
    END IF;
    eff := effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last);
    IF s.sessions > 0 AND s.oldest_deadline < s.clock THEN -- reap
      ids := ARRAY(SELECT x.id FROM session x WHERE x.semaphore = s.id AND x.deadline < s.clock ORDER BY x.renewal LIMIT 16 + 1);
      r_more := cardinality(ids) > 16;
      ids := ids[1:16];
      IF cardinality(ids) > 0 THEN
        SELECT * INTO e FROM end_sessions(s.id, s.floor, ids);
        s.sessions := s.sessions - e.sessions; s.pools := s.pools - e.pools; s.recalled := s.recalled - e.recalled;
        s.waiting := s.waiting - e.waiting; s.wanted := s.wanted - e.wanted; s.leases := s.leases - e.leases; s.in_use := s.in_use - e.in_use;
        IF e.slots <> '' THEN
          s.slots_in_use := free_slots(s.slots_in_use, e.slots);
        END IF;
        h_place := NULL;
      END IF;
      SELECT * INTO e FROM find_oldest(s.id, s.last);
      s.oldest := e.oldest; s.oldest_renewed := e.lowest_renewed; s.oldest_deadline := coalesce(e.deadline, s.clock);
      expired := r_more;
    END IF;
    IF expired THEN
      h_place := NULL; -- the window shows whether its session has expired
    END IF;
  END IF;

  IF p_session <> 0 THEN
    SELECT x.id, x.seq, x.deadline, x.renewed, x.renewal, x.waiting, x.pooled, x.recalled, x.notifications, x.delivered, x.last_result,
        x.result_n, x.result_kind, x.result_ticket, x.result_lease, x.result_weight, x.result_text
      INTO me.id, me.seq, me.deadline, me.renewed, me.renewal, me.waiting, me.pooled, me.recalled, me.notifications, me.delivered, me.last_result,
        f_n, f_kind, f_ticket, f_lease, f_weight, f_text
      FROM session x WHERE x.semaphore = s.id AND x.id = p_session AND x.deadline >= s.clock AND x.key = p_key AND x.principal = p_principal;
    mine := FOUND;
    IF mine AND me.renewal <= s.server_renewals AND (p_seq > me.seq + 1 OR p_ack > me.last_result) THEN
      mine := false; -- it has a reply whose commit was lost, and may hold what other sessions are granted
    END IF;
  END IF;
  IF mine THEN
    own := me.id;
    IF me.recalled THEN -- from here on s.pools and s.recalled count the other sessions
      s.recalled := s.recalled - 1;
    ELSIF me.pooled > 0 THEN
      s.pools := s.pools - 1;
    END IF;
  END IF;

  -- Step 0 serves the queue after time has passed, and then accepts the batch. Steps 1
  -- to n are its ops, n+1 serves the queue after them.
  LOOP
    IF twice THEN -- an acquire whose ticket is queued has no effect
      there := p_verb[i] = 1 /* acquire */
        AND EXISTS (SELECT FROM ticket t WHERE t.semaphore = s.id AND t.session = me.id AND t.id = p_ticket[i] AND t.place > s.served);
    END IF;
    -- State.grant: serve the queue, strictly in order.
    IF i = 0 OR i > n OR p_verb[i] = 1 /* acquire */ AND NOT there THEN
      WHILE s.waiting > 0 LOOP
        IF h_place IS NOT NULL AND (h_until = 0 OR h_until >= s.clock) AND h_least > eff - s.in_use THEN
          EXIT;
        END IF;
        IF head > l_n THEN
          SELECT array_agg(q.place), array_agg(q.session), array_agg(q.id), array_agg(q.weight), array_agg(q.least), array_agg(q.until),
              array_agg(q.pooled), array_agg(q.details), array_agg(q.deadline)
            INTO l_place, l_session, l_ticket, l_weight, l_least, l_until, l_pooled, l_details, l_deadline
            FROM (
              SELECT t.*, x.deadline FROM ticket t JOIN session x ON x.semaphore = t.semaphore AND x.id = t.session
              WHERE t.semaphore = s.id AND t.place > s.served
              ORDER BY t.place LIMIT least(64, greatest(eff - s.in_use, 0) + 1)
            ) q;
          IF l_place IS NULL THEN
            RAISE EXCEPTION 'sema: % tickets of % are not there', s.waiting, p_name USING ERRCODE = 'data_corrupted';
          END IF;
          l_n := cardinality(l_place); head := 1;
        END IF;
        h_place := l_place[head]; h_session := l_session[head]; h_least := l_least[head]; h_until := l_until[head];
        IF expired AND l_deadline[head] < s.clock THEN
          EXIT; -- one call ends no more sessions
        END IF;
        IF h_until > 0 AND h_until < s.clock THEN -- reject
          kind := 6 /* timed_out */;
          w := 0;
          slots_ := '';
        ELSIF h_least > eff - s.in_use THEN
          EXIT;
        ELSE
          kind := 1 /* granted */;
          w := l_weight[head];
          IF h_least < w THEN -- portion
            IF EXISTS (SELECT FROM ticket t WHERE t.semaphore = s.id AND t.place > s.served AND t.session <> h_session) THEN
              w := least(w, s.capacity / s.sessions);
            END IF;
            w := greatest(h_least, least(w, eff - s.in_use));
          END IF;
          s.last_seq := s.last_seq + 1;
          s.in_use := s.in_use + w;
          IF s.kind = 1 THEN
            x_seq := x_seq || s.last_seq; x_session := x_session || h_session; x_weight := x_weight || w;
          ELSE
            s.leases := s.leases + 1;
            IF s.numbered THEN
              SELECT k.in_use, k.slots INTO s.slots_in_use, slots_ FROM take_slots(s.slots_in_use, w) k;
              g_slots := g_slots || slots_;
            END IF;
            g_seq := g_seq || s.last_seq; g_session := g_session || h_session; g_weight := g_weight || w; g_since := g_since || s.last;
            g_pooled := g_pooled || l_pooled[head]; g_details := g_details || l_details[head];
          END IF;
        END IF;
        s.waiting := s.waiting - 1;
        s.wanted := s.wanted - h_least;
        s.served := h_place;
        IF mine AND h_session = me.id THEN
          me.waiting := me.waiting - 1;
          IF kind = 1 /* granted */ AND s.kind = 0 AND l_pooled[head] THEN
            me.pooled := me.pooled + 1;
          END IF;
          me.last_result := me.last_result + 1;
          f_n := f_n || me.last_result; f_kind := f_kind || kind; f_ticket := f_ticket || l_ticket[head];
          f_lease := f_lease || CASE WHEN kind = 1 /* granted */ THEN s.last_seq ELSE 0 END; f_weight := f_weight || w; f_text := f_text || slots_;
          woken := true;
        ELSE
          o_session := o_session || h_session; o_kind := o_kind || kind; o_ticket := o_ticket || l_ticket[head];
          o_lease := o_lease || CASE WHEN kind = 1 /* granted */ THEN s.last_seq ELSE 0 END; o_weight := o_weight || w;
          IF s.numbered THEN
            o_text := o_text || slots_;
          END IF;
          o_dequeued := o_dequeued || 1;
          o_block := o_block || (kind = 1 /* granted */ AND s.kind = 0 AND l_pooled[head])::integer;
        END IF;
        h_place := NULL;
        head := head + 1;
      END LOOP;
    END IF;

    -- State.settle: write the changes, and notify sessions that can return permits or
    -- have to poll.
    IF i = 0 OR i > n THEN
      IF s.served > served OR touched OR parted OR g_seq IS NOT NULL OR x_seq IS NOT NULL OR o_session IS NOT NULL THEN
        IF s.served > served THEN
          DELETE FROM ticket t WHERE t.semaphore = s.id AND t.place > served AND t.place <= s.served;
          served := s.served;
        END IF;
        IF touched THEN
          DELETE FROM lease l WHERE l.ctid = ANY (ARRAY(
            SELECT f.at FROM unnest(p_named, t_weight, t_before) o(seq, weight, before),
              LATERAL (SELECT x.ctid AS at FROM lease x WHERE x.semaphore = s.id AND x.seq = o.seq OFFSET 0) f
            WHERE o.weight = 0 AND o.before > 0
          ));
          touched := false;
        END IF;
        IF parted THEN
          UPDATE lease l SET weight = q.weight, slots = q.slots FROM (
            SELECT f.at, o.weight, o.slots FROM unnest(p_named, t_weight, t_slots, t_before) o(seq, weight, slots, before),
              LATERAL (SELECT x.ctid AS at FROM lease x WHERE x.semaphore = s.id AND x.seq = o.seq OFFSET 0) f
            WHERE o.weight > 0 AND o.weight <> o.before OFFSET 0
          ) q WHERE l.ctid = q.at;
          parted := false;
        END IF;
        IF g_seq IS NOT NULL THEN
          INSERT INTO lease (semaphore, seq, session, weight, since, pooled, details, slots)
            SELECT s.id, o.seq, o.session, o.weight, o.since, o.pooled, o.details, coalesce(o.slots, '')
            FROM unnest(g_seq, g_session, g_weight, g_since, g_pooled, g_details, g_slots) o(seq, session, weight, since, pooled, details, slots) WHERE o.weight > 0;
          g_seq := NULL; g_session := NULL; g_weight := NULL; g_since := NULL; g_pooled := NULL; g_details := NULL; g_slots := NULL;
        END IF;
        IF x_seq IS NOT NULL THEN
          INSERT INTO spending (semaphore, until, seq, session, weight) SELECT s.id, s.last + s.period, o.* FROM unnest(x_seq, x_session, x_weight) o;
          x_seq := NULL; x_session := NULL; x_weight := NULL;
        END IF;
        IF o_session IS NOT NULL THEN
          s.pools := s.pools + add_results(s.id, o_session, o_kind, o_ticket, o_lease, o_weight,
            coalesce(o_text, array_fill(''::text, ARRAY[cardinality(o_session)])), o_dequeued, o_block);
          w_ids := w_ids || o_session;
          o_session := NULL; o_kind := NULL; o_ticket := NULL; o_lease := NULL; o_weight := NULL; o_text := NULL;
          o_dequeued := NULL; o_block := NULL;
        END IF;
      END IF;

      -- State.recall
      IF s.pools = 0 AND s.recalled = 0 AND (NOT mine OR me.pooled = 0) THEN
        NULL; -- no session has pooled leases
      ELSIF s.waiting > 0 OR s.draining OR s.in_use > eff THEN
        IF mine AND me.pooled > 0 AND NOT me.recalled AND (s.waiting > me.waiting OR s.draining OR s.in_use > eff) THEN
          me.recalled := true;
          woken := true;
        END IF;
        IF s.pools > 0 THEN
          WITH recalled AS (
            UPDATE session x SET recalled = true, notifications = x.notifications + 1
            WHERE x.semaphore = s.id AND x.id <> own AND x.pooled > 0 AND NOT x.recalled AND (s.waiting > x.waiting OR s.draining OR s.in_use > eff)
            RETURNING x.id
          ) SELECT coalesce(array_agg(o.id), '{}') INTO ids FROM recalled o;
          s.pools := s.pools - cardinality(ids); s.recalled := s.recalled + cardinality(ids);
          w_ids := w_ids || ids;
        END IF;
      ELSE
        me.recalled := false;
        IF s.recalled > 0 THEN
          UPDATE session x SET recalled = false WHERE x.semaphore = s.id AND x.id <> own AND x.recalled;
          s.pools := s.pools + s.recalled; s.recalled := 0;
        END IF;
      END IF;

      -- State.due: how long until the first ticket may be granted by time alone.
      due := NULL;
      IF s.waiting > 0 AND h_least <= s.capacity AND s.in_use + h_least > eff THEN
        IF s.kind = 1 THEN
          w := s.in_use + h_least - eff;
          FOR e IN SELECT x.until, x.weight FROM spending x WHERE x.semaphore = s.id AND x.seq >= s.floor ORDER BY x.seq LOOP
            w := w - e.weight;
            IF w <= 0 THEN
              due := greatest(e.until - s.last, 0);
              EXIT;
            END IF;
          END LOOP;
        END IF;
        IF due IS NULL AND s.ramp > 0 AND eff < s.capacity AND s.in_use + h_least <= s.capacity THEN
          due := greatest(s.ramp_at + ((s.in_use + h_least - s.ramp_from) * 1000000 + s.ramp - 1) / s.ramp - s.last, 0);
        END IF;
        IF due IS NOT NULL AND s.notified_place <> h_place THEN
          s.notified_place := h_place;
          IF mine AND h_session = me.id THEN
            woken := true;
          ELSE
            UPDATE session x SET notifications = x.notifications + 1 WHERE x.semaphore = s.id AND x.id = h_session;
            w_ids := w_ids || h_session;
          END IF;
        END IF;
      END IF;
    END IF;

    IF i = 0 THEN
      -- State.applyBatch: the status of the batch.
      IF NOT mine THEN
        r_status := 3 /* unknown */;
      ELSIF p_seq < me.seq THEN
        r_status := 2 /* stale */;
      ELSIF p_seq = me.seq THEN
        r_status := 1 /* repeated */;
      ELSE
        r_status := 0 /* applied */;
      END IF;
      IF mine AND p_highest > s.last_seq THEN
        s.last_seq := note_highest(s.last_seq, p_highest, s.last);
      END IF;
      IF r_status <> 0 /* applied */ THEN
        i := n;
      ELSE
        me.seq := p_seq;
        me.deadline := s.clock + s.ttl; me.renewed := s.last; -- renew
        s.renewals := s.renewals + 1; me.renewal := s.renewals;
        IF s.oldest = me.id THEN
          s.oldest := 0;
        END IF;
        -- State.acknowledge
        k := 0;
        WHILE f_n[k + 1] <= p_ack LOOP
          k := k + 1;
          IF f_kind[k] = 7 /* revoked */ THEN
            DELETE FROM lease l WHERE l.semaphore = s.id AND l.seq = f_lease[k] AND l.session = me.id RETURNING l.weight, l.pooled, l.slots INTO e;
            IF FOUND THEN
              s.leases := s.leases - 1; s.in_use := s.in_use - e.weight;
              IF s.numbered THEN
                s.slots_in_use := free_slots(s.slots_in_use, e.slots);
              END IF;
              IF e.pooled THEN
                me.pooled := me.pooled - 1; me.recalled := me.recalled AND me.pooled > 0;
              END IF;
            END IF;
          END IF;
        END LOOP;
        IF k > 0 THEN
          f_n := f_n[k + 1:]; f_kind := f_kind[k + 1:]; f_ticket := f_ticket[k + 1:]; f_lease := f_lease[k + 1:];
          f_weight := f_weight[k + 1:]; f_text := f_text[k + 1:];
        END IF;
        IF p_end THEN
          SELECT * INTO e FROM end_sessions(s.id, s.floor, ARRAY[me.id]);
          s.sessions := s.sessions - 1; s.waiting := s.waiting - e.waiting; s.wanted := s.wanted - e.wanted;
          s.leases := s.leases - e.leases; s.in_use := s.in_use - e.in_use;
          IF e.slots <> '' THEN
            s.slots_in_use := free_slots(s.slots_in_use, e.slots);
          END IF;
          mine := false;
          h_place := NULL; l_n := 0; head := 1;
          i := n;
        ELSIF n > 0 THEN
          twice := p_twice OR p_plain <> 0 AND me.waiting > 0
            AND EXISTS (SELECT FROM ticket t WHERE t.semaphore = s.id AND t.session = me.id AND t.id = ANY (p_ticket));
        END IF;
        IF i = n THEN
          NULL;
        ELSIF (p_plain = 0 OR p_plain > 0 AND s.waiting = 0 AND p_plain <= eff - s.in_use AND s.kind = 0 AND NOT s.draining) AND NOT s.numbered THEN
          -- Most batches: releases, and acquires that all fit while the queue is empty.
          -- Their order makes no difference.
          IF cardinality(p_named) > 0 THEN
            WITH gone AS (
              DELETE FROM lease l WHERE l.ctid = ANY (ARRAY(
                SELECT f.at FROM unnest(p_named) o(seq),
                  LATERAL (SELECT x.ctid AS at FROM lease x WHERE x.semaphore = s.id AND x.seq = o.seq AND x.session = me.id OFFSET 0) f
              )) RETURNING l.weight, l.pooled
            )
              SELECT count(*) AS leases, coalesce(sum(g.weight), 0) AS in_use, count(*) FILTER (WHERE g.pooled) AS pooled INTO e FROM gone g;
            s.leases := s.leases - e.leases; s.in_use := s.in_use - e.in_use;
            me.pooled := me.pooled - e.pooled; me.recalled := me.recalled AND me.pooled > 0;
          END IF;
          IF p_plain > 0 THEN
            WITH asked AS (
              SELECT row_number() OVER () AS n, o.* FROM unnest(p_verb, p_ticket, p_weight, p_details) o(verb, ticket, weight, details) WHERE o.verb = 1 /* acquire */
            ), lent AS (
              INSERT INTO lease (semaphore, seq, session, weight, since, pooled, details)
                SELECT s.id, s.last_seq + a.n, me.id, a.weight, s.last, false, a.details FROM asked a
            )
            SELECT count(*) AS leases, array_agg(me.last_result + a.n) AS n, array_agg(1::smallint) AS kind, array_agg(a.ticket) AS ticket,
              array_agg(s.last_seq + a.n) AS lease, array_agg(a.weight) AS weight, array_agg(''::text) AS note INTO e FROM asked a;
            f_n := f_n || e.n; f_kind := f_kind || e.kind; f_ticket := f_ticket || e.ticket; f_lease := f_lease || e.lease;
            f_weight := f_weight || e.weight; f_text := f_text || e.note;
            me.last_result := me.last_result + e.leases; s.last_seq := s.last_seq + e.leases;
            s.leases := s.leases + e.leases; s.in_use := s.in_use + p_plain;
          END IF;
          i := n;
        ELSIF p_most > 0 AND (p_most <= whole OR whole = 0) AND s.max_waiters = 0 AND NOT s.draining AND NOT s.pooled AND NOT s.numbered AND NOT twice THEN
          -- Releases, and acquires that are queued: none is rejected, the queue is served
          -- in its order, and the weight of a grant does not depend on how much is free.
          IF cardinality(p_named) > 0 THEN
            WITH gone AS (
              DELETE FROM lease l WHERE l.ctid = ANY (ARRAY(
                SELECT f.at FROM unnest(p_named) o(seq),
                  LATERAL (SELECT x.ctid AS at FROM lease x WHERE x.semaphore = s.id AND x.seq = o.seq AND x.session = me.id OFFSET 0) f
              )) RETURNING l.weight
            )
              SELECT count(*) AS leases, coalesce(sum(g.weight), 0) AS in_use INTO e FROM gone g;
            s.leases := s.leases - e.leases; s.in_use := s.in_use - e.in_use;
          END IF;
          INSERT INTO ticket (semaphore, place, session, id, weight, least, until, since, pooled, details)
            SELECT s.id, s.last_place + row_number() OVER (), me.id, o.ticket, o.weight, o.weight,
              CASE WHEN o.wait > 0 THEN s.clock + o.wait ELSE 0 END, s.last, false, o.details
            FROM unnest(p_verb, p_ticket, p_weight, p_wait, p_details) o(verb, ticket, weight, wait, details) WHERE o.verb = 1 /* acquire */;
          GET DIAGNOSTICS k = ROW_COUNT;
          IF s.waiting = 0 THEN
            h_place := NULL;
          END IF;
          s.last_place := s.last_place + k; s.waiting := s.waiting + k; s.wanted := s.wanted + p_plain; me.waiting := me.waiting + k;
          i := n;
        ELSE
          -- Acquires, and releases unless slots are numbered: one that follows an acquire
          -- may free a lower number.
          simple := NOT twice AND p_verb <@ '{1,3}' AND (NOT s.numbered OR p_verb <@ '{1}');
          IF cardinality(p_named) > 0 THEN
            SELECT array_agg(coalesce(q.weight, 0)), array_agg(coalesce(q.pooled, false)), array_agg(coalesce(q.revoked, false)), array_agg(coalesce(q.slots, ''))
              INTO t_weight, t_pooled, t_revoked, t_slots
              FROM (
                SELECT l.weight, l.pooled, l.revoked, l.slots FROM unnest(p_named) WITH ORDINALITY o(seq, i)
                LEFT JOIN LATERAL (SELECT x.* FROM lease x WHERE x.semaphore = s.id AND x.seq = o.seq AND x.session = me.id OFFSET 0) l ON true ORDER BY o.i
              ) q;
            t_before := t_weight;
          END IF;
        END IF;
      END IF;

    ELSIF i <= n THEN
      kind := 0;
      IF p_verb[i] = 1 /* acquire */ THEN
        w := p_weight[i];
        least_ := w;
        IF p_pooled[i] AND p_least[i] > 0 THEN
          least_ := least(p_least[i], w);
        END IF;
        fits := s.waiting = 0 AND least_ <= eff - s.in_use;
        IF there THEN
          NULL; -- named twice
        ELSIF w <= 0 OR s.numbered AND p_pooled[i] THEN
          kind := 8 /* invalid */;
        ELSIF s.draining THEN
          kind := 5 /* draining */;
        ELSIF least_ > whole AND whole > 0 THEN
          kind := 4 /* too_large */;
        ELSIF fits AND simple AND NOT p_pooled[i] THEN
          -- It would be the only ticket in the queue, and be granted before any other
          -- change.
          s.last_seq := s.last_seq + 1;
          s.in_use := s.in_use + w;
          IF s.kind = 1 THEN
            x_seq := x_seq || s.last_seq; x_session := x_session || p_session; x_weight := x_weight || w;
          ELSE
            s.leases := s.leases + 1;
            IF s.numbered THEN
              SELECT k.in_use, k.slots INTO s.slots_in_use, slots_ FROM take_slots(s.slots_in_use, w) k;
              g_slots := g_slots || slots_;
            END IF;
            g_seq := g_seq || s.last_seq; g_session := g_session || p_session; g_weight := g_weight || w; g_since := g_since || s.last;
            g_pooled := g_pooled || false; g_details := g_details || p_details[i];
          END IF;
          me.last_result := me.last_result + 1;
          f_n := f_n || me.last_result; f_kind := f_kind || 1::smallint /* granted */; f_ticket := f_ticket || p_ticket[i]; f_lease := f_lease || s.last_seq;
          f_weight := f_weight || w; f_text := f_text || slots_;
        ELSIF NOT fits AND p_try[i] THEN
          kind := 2 /* full */;
        ELSIF NOT fits AND s.max_waiters <> 0 AND s.waiting >= s.max_waiters THEN
          kind := 3 /* queue_full */;
        ELSE -- queue it
          until_ := CASE WHEN p_wait[i] > 0 THEN s.clock + p_wait[i] ELSE 0 END;
          s.last_place := s.last_place + 1;
          IF twice THEN -- one with the same id may have been served, and not been deleted
            DELETE FROM ticket t WHERE t.semaphore = s.id AND t.place > served AND t.place <= s.served;
            served := s.served;
          END IF;
          INSERT INTO ticket (semaphore, place, session, id, weight, least, until, since, pooled, details)
            VALUES (s.id, s.last_place, me.id, p_ticket[i], w, least_, until_, s.last, p_pooled[i], p_details[i]);
          IF s.waiting = 0 THEN
            h_place := s.last_place; h_session := me.id; h_least := least_; h_until := until_;
          END IF;
          s.waiting := s.waiting + 1;
          s.wanted := s.wanted + least_;
          me.waiting := me.waiting + 1;
          s.pooled := s.pooled OR p_pooled[i];
        END IF;

      ELSIF p_verb[i] = 3 /* release */ THEN
        j := p_which[i];
        w := p_weight[i];
        IF t_weight[j] = 0 OR w < 0 THEN
          NULL; -- it is released already, or another session's
        ELSIF w = 0 OR w >= t_weight[j] THEN
          s.in_use := s.in_use - t_weight[j];
          s.leases := s.leases - 1;
          IF s.numbered THEN
            s.slots_in_use := free_slots(s.slots_in_use, t_slots[j]);
          END IF;
          t_weight[j] := 0;
          touched := true;
          IF t_pooled[j] THEN
            me.pooled := me.pooled - 1; me.recalled := me.recalled AND me.pooled > 0;
          END IF;
        ELSE
          s.in_use := s.in_use - w;
          t_weight[j] := t_weight[j] - w;
          IF s.numbered THEN
            SELECT * INTO e FROM cut_slots(t_slots[j], w);
            t_slots[j] := e.kept; s.slots_in_use := free_slots(s.slots_in_use, e.highest);
          END IF;
          parted := true;
        END IF;

      ELSIF p_verb[i] = 2 /* cancel */ THEN
        DELETE FROM ticket t WHERE t.semaphore = s.id AND t.session = me.id AND t.id = p_ticket[i] AND t.place > s.served
          RETURNING t.place, t.least INTO place_, least_;
        IF FOUND THEN
          s.waiting := s.waiting - 1; s.wanted := s.wanted - least_;
          me.waiting := me.waiting - 1;
          l_n := 0; head := 1; -- the window may have it
          IF place_ = h_place THEN
            h_place := NULL;
          END IF;
        ELSE
          k := 0;
          LOOP
            k := array_position(f_ticket, p_ticket[i], k + 1);
            EXIT WHEN k IS NULL OR f_kind[k] NOT IN (0, 7 /* revoked */);
          END LOOP;
          IF k IS NOT NULL THEN
            IF f_kind[k] = 1 /* granted */ AND s.kind = 1 THEN -- refund
              j := array_position(x_seq, f_lease[k]);
              IF j IS NOT NULL THEN
                s.in_use := s.in_use - x_weight[j];
                x_weight[j] := 0;
              ELSE
                SELECT x.weight INTO w FROM spending x WHERE x.semaphore = s.id AND x.seq = f_lease[k] AND x.session = me.id;
                IF FOUND THEN
                  UPDATE spending x SET weight = 0 WHERE x.semaphore = s.id AND x.seq = f_lease[k];
                  s.in_use := s.in_use - w;
                END IF;
              END IF;
            ELSIF f_kind[k] = 1 /* granted */ THEN -- release
              w := 0;
              j := array_position(g_seq, f_lease[k]);
              IF j IS NOT NULL THEN
                w := g_weight[j]; fits := g_pooled[j]; freed_ := g_slots[j];
                g_weight[j] := 0;
              ELSE
                j := array_position(p_named, f_lease[k]);
                IF j IS NOT NULL THEN
                  w := t_weight[j]; fits := t_pooled[j]; freed_ := t_slots[j];
                  t_weight[j] := 0;
                  touched := true;
                ELSE
                  DELETE FROM lease l WHERE l.semaphore = s.id AND l.seq = f_lease[k] AND l.session = me.id RETURNING l.weight, l.pooled, l.slots INTO w, fits, freed_;
                  w := coalesce(w, 0);
                END IF;
              END IF;
              IF w > 0 THEN
                s.in_use := s.in_use - w;
                s.leases := s.leases - 1;
                IF s.numbered THEN
                  s.slots_in_use := free_slots(s.slots_in_use, freed_);
                END IF;
                IF fits THEN
                  me.pooled := me.pooled - 1; me.recalled := me.recalled AND me.pooled > 0;
                END IF;
              END IF;
            END IF;
            f_kind[k] := 0;
            holes := true;
          END IF;
        END IF;

      ELSIF p_verb[i] = 4 /* split */ AND t_weight[p_which[i]] > p_weight[i] AND p_weight[i] > 0 AND NOT t_revoked[p_which[i]] THEN
        j := p_which[i];
        w := p_weight[i];
        t_weight[j] := t_weight[j] - w;
        parted := true;
        SELECT l.since, l.details INTO since_, details_ FROM lease l WHERE l.semaphore = s.id AND l.seq = p_named[j];
        s.last_seq := s.last_seq + 1;
        s.leases := s.leases + 1;
        IF s.numbered THEN
          SELECT * INTO e FROM cut_slots(t_slots[j], w);
          t_slots[j] := e.kept; slots_ := e.highest; g_slots := g_slots || slots_;
        END IF;
        g_seq := g_seq || s.last_seq; g_session := g_session || p_session; g_weight := g_weight || w; g_since := g_since || since_;
        g_pooled := g_pooled || t_pooled[j]; g_details := g_details || details_;
        me.pooled := me.pooled + t_pooled[j]::integer;
        me.last_result := me.last_result + 1;
        f_n := f_n || me.last_result; f_kind := f_kind || 1::smallint /* granted */; f_ticket := f_ticket || p_ticket[i]; f_lease := f_lease || s.last_seq;
        f_weight := f_weight || w; f_text := f_text || slots_;

      ELSIF p_verb[i] = 5 /* settle */ AND s.kind = 1 AND p_weight[i] >= 0 AND p_least[i] >= 0 THEN
        w := least(p_weight[i], whole);
        j := array_position(x_seq, p_named[p_which[i]]);
        IF j IS NOT NULL THEN -- granted by this batch
          IF x_session[j] = me.id THEN
            s.in_use := s.in_use + w - x_weight[j];
            x_weight[j] := w;
          END IF;
        ELSE
          SELECT x.session, x.weight INTO e FROM spending x WHERE x.semaphore = s.id AND x.seq = p_named[p_which[i]];
          IF NOT FOUND AND w > p_least[i] THEN -- it has left the window: the excess is charged now
            s.last_seq := s.last_seq + 1;
            s.in_use := s.in_use + w - p_least[i];
            x_seq := x_seq || s.last_seq; x_session := x_session || me.id; x_weight := x_weight || w - p_least[i];
          ELSIF e.session = me.id THEN
            UPDATE spending x SET weight = w WHERE x.semaphore = s.id AND x.seq = p_named[p_which[i]];
            s.in_use := s.in_use + w - e.weight;
          END IF;
        END IF;

      ELSE
        kind := 8 /* invalid */;
      END IF;
      IF kind > 0 THEN -- reject
        me.last_result := me.last_result + 1;
        f_n := f_n || me.last_result; f_kind := f_kind || kind; f_ticket := f_ticket || p_ticket[i]; f_lease := f_lease || 0::bigint;
        f_weight := f_weight || 0::bigint; f_text := f_text || ''::text;
      END IF;

    ELSE
      EXIT;
    END IF;
    i := i + 1;
  END LOOP;

  -- State.reply
  SELECT 0, false, 0, 0, s.leases <= 4096, s.in_use, least(s.wanted, 9223372036854775807), CASE WHEN s.waiting > 0 THEN h_least ELSE 0 END,
      ARRAY[s.kind, s.capacity, s.whole, s.ramp, s.max_waiters, s.ttl, s.period, s.draining::integer, s.version, s.protocol, s.numbered::integer]
    INTO r_next, r_recall, r_share, r_undecided, r_exact, r_in_use, r_wanted, r_first, r_config;
  IF mine THEN
    IF holes THEN
      SELECT array_agg(q.n), array_agg(q.kind), array_agg(q.ticket), array_agg(q.lease), array_agg(q.weight), array_agg(q.note)
        INTO f_n, f_kind, f_ticket, f_lease, f_weight, f_text
        FROM (
          SELECT * FROM unnest(f_n, f_kind, f_ticket, f_lease, f_weight, f_text) o(n, kind, ticket, lease, weight, note) WHERE o.kind > 0 ORDER BY o.n
        ) q;
      f_n := coalesce(f_n, '{}'); f_kind := coalesce(f_kind, '{}'); f_ticket := coalesce(f_ticket, '{}'); f_lease := coalesce(f_lease, '{}');
      f_weight := coalesce(f_weight, '{}'); f_text := coalesce(f_text, '{}');
    END IF;
    IF me.pooled > 0 THEN
      r_recall := s.waiting > me.waiting OR s.draining OR s.in_use > eff;
      me.recalled := me.recalled AND r_recall; -- the reply withdraws the recall, so the next one needs a notification
      IF r_recall AND NOT s.draining AND r_first <= s.capacity / s.sessions THEN
        r_share := s.capacity / s.sessions;
      END IF;
    END IF;
    IF me.waiting > 0 AND (h_session = me.id OR gap > s.ttl / 6) THEN -- next
      r_next := s.ttl / 6;
      IF h_session = me.id AND due IS NOT NULL THEN
        r_next := greatest(1, least(r_next, due));
      END IF;
    END IF;
    IF r_status = 0 /* applied */ THEN
      me.delivered := me.notifications; -- the reply has it all
    ELSIF woken THEN
      -- The reply to a batch that was duplicated on its way may reach no client.
      me.notifications := me.notifications + 1;
      w_ids := w_ids || me.id;
    END IF;
    IF me.recalled THEN
      s.recalled := s.recalled + 1;
    ELSIF me.pooled > 0 THEN
      s.pools := s.pools + 1;
    END IF;
    IF 1 /* granted */ = ANY (f_kind) AND s.leases > 0 THEN -- fences
      w := (SELECT max(o.lease) FROM unnest(f_lease) o(lease));
      IF r_exact THEN
        SELECT min(p.seq), max(p.seq), array_agg(p.before + 1 ORDER BY p.seq) FILTER (WHERE p.seq > p.before + 1),
            array_agg(p.seq - 1 ORDER BY p.seq) FILTER (WHERE p.seq > p.before + 1)
          INTO r_floor, r_top, r_gone_from, r_gone_to
          FROM (
            SELECT l.seq, lag(l.seq) OVER (ORDER BY l.seq) AS before FROM lease l WHERE l.semaphore = s.id AND l.seq >= s.floor AND l.seq <= w
          ) p;
      ELSE
        SELECT l.seq INTO r_floor FROM lease l WHERE l.semaphore = s.id AND l.seq >= s.floor AND l.seq <= w ORDER BY l.seq LIMIT 1;
      END IF;
      s.floor := coalesce(r_floor, s.floor);
    END IF;
    UPDATE session x SET
      seq = me.seq, deadline = me.deadline, renewed = me.renewed, renewal = me.renewal, waiting = me.waiting, pooled = me.pooled,
      recalled = me.recalled, notifications = me.notifications, delivered = me.delivered, last_result = me.last_result,
      result_n = f_n, result_kind = f_kind, result_ticket = f_ticket, result_lease = f_lease, result_weight = f_weight, result_text = f_text
    WHERE x.semaphore = s.id AND x.id = me.id;
    IF cardinality(f_n) > 0 THEN
      r_result_n := f_n; r_result_kind := f_kind; r_result_ticket := f_ticket; r_result_lease := f_lease; r_result_weight := f_weight; r_result_text := f_text;
    END IF;
  END IF;
  IF s.waiting = 0 THEN
    h_place := NULL;
  END IF;
  IF (r_more OR s.last - s.oldest_renewed > s.ttl) AND s.kind = 0 AND s.sessions > 0 THEN -- State.undecided
    IF r_more THEN
      r_undecided := 1; -- more sessions have expired than one call ends
    ELSIF s.oldest <> 0 THEN
      r_undecided := s.oldest_deadline - s.clock + 1;
    ELSE
      SELECT * INTO e FROM find_oldest(s.id, s.last);
      s.oldest := e.oldest; s.oldest_renewed := e.lowest_renewed; s.oldest_deadline := e.deadline;
      IF s.last - e.renewed > s.ttl THEN
        r_undecided := e.deadline - s.clock + 1;
      END IF;
    END IF;
  END IF;
  UPDATE semaphore x SET
    ramp_from = s.ramp_from, ramp_at = s.ramp_at, last = s.last, clock = s.clock, last_session = s.last_session, last_seq = s.last_seq, renewals = s.renewals,
    server_started = s.server_started, server_renewals = s.server_renewals,
    in_use = s.in_use, leases = s.leases, sessions = s.sessions, waiting = s.waiting, wanted = s.wanted, pools = s.pools, recalled = s.recalled,
    floor = s.floor, slots_in_use = s.slots_in_use, pooled = s.pooled, last_place = s.last_place, served = s.served,
    first_place = h_place, first_session = h_session, first_least = h_least, first_until = h_until, notified_place = s.notified_place,
    oldest = s.oldest, oldest_renewed = s.oldest_renewed, oldest_deadline = s.oldest_deadline
  WHERE x.id = s.id;
  IF w_ids IS NOT NULL THEN
    PERFORM pg_notify(channel(q.instance), p_name) FROM (
      SELECT DISTINCT f.instance FROM unnest(w_ids) o(id), LATERAL (SELECT x.instance FROM session x WHERE x.semaphore = s.id AND x.id = o.id OFFSET 0) f
    ) q;
  END IF;
END
$$;
