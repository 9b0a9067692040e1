-- open_session creates the semaphore, unless it exists, and opens a session on it. Its
-- problem is '', 'version', or 'missing' if it may not create it.
CREATE OR REPLACE FUNCTION open_session(
  p_name text, p_kind smallint, p_capacity bigint, p_whole bigint, p_ramp bigint, p_max_waiters bigint, p_ttl bigint, p_period bigint,
  p_numbered boolean, p_draining boolean, p_protocol bigint, p_create boolean,
  p_instance text, p_client text, p_key uuid, p_principal text, p_highest bigint, -- of the opener
  OUT r_problem text, OUT r_session bigint, OUT r_config bigint[]
) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; advanced record; buried bigint; now_us bigint;
BEGIN
  r_problem := '';
  LOOP
    SELECT * INTO advanced FROM advance(p_name, true);
    EXIT WHEN advanced.r_status IS NOT NULL;
    IF NOT p_create THEN
      r_problem := 'missing';
      RETURN;
    END IF;
    -- The insert waits for a transaction that deletes the semaphore, so its tombstone
    -- is read after the insert.
    now_us := now_micros();
    INSERT INTO semaphore (name, kind, capacity, whole, ramp, max_waiters, ttl, period, numbered, draining, version, protocol,
        ramp_from, ramp_at, last, oldest_renewed, last_session, last_seq, slots_in_use)
      VALUES (p_name, p_kind, p_capacity, p_whole, p_ramp, p_max_waiters, p_ttl, p_period, p_numbered, p_draining, 1, p_protocol,
        p_capacity, now_us, now_us, now_us, greatest(now_us, 0), greatest(now_us, 0),
        CASE WHEN p_numbered THEN repeat('0', 1024 /* MaxNumbered */)::bit varying ELSE '' END)
      ON CONFLICT (name) DO NOTHING;
    IF FOUND THEN
      DELETE FROM tombstone t WHERE t.name = p_name RETURNING t.seq INTO buried;
      UPDATE semaphore x SET last_session = greatest(x.last_session, buried), last_seq = greatest(x.last_seq, buried) WHERE x.name = p_name;
    END IF;
  END LOOP;
  r_config := advanced.r_config;
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name;
  IF p_protocol + 1 < s.protocol OR p_protocol > s.protocol + 1 THEN
    r_problem := 'version';
    RETURN;
  END IF;
  r_session := s.last_session + 1;
  INSERT INTO session (semaphore, id, instance, client, key, principal, deadline, renewed, renewal)
    VALUES (s.id, r_session, p_instance, p_client, p_key, p_principal, s.clock + s.ttl, s.last, s.renewals + 1);
  UPDATE semaphore x SET last_session = r_session, last_seq = note_highest(x.last_seq, p_highest, x.last), renewals = x.renewals + 1, sessions = x.sessions + 1
    WHERE x.id = s.id;
END
$$;

-- advance advances the clocks of a semaphore and serves its queue; with p_begin false it
-- only serves the queue. Its status is null if there is no such semaphore.
CREATE OR REPLACE FUNCTION advance(p_name text, p_begin boolean, OUT r_status smallint, OUT r_config bigint[]) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT r.r_status, r.r_config INTO r_status, r_config
    FROM apply_batch(p_name, 0, NULL, '', 0, 0, 0, false, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false, -1, 0, p_begin) r;
END
$$;

-- configure changes the configuration. Its problem is '', 'missing', 'conflict',
-- 'fixed' or 'protocol'; r_version and r_protocol are the stored ones.
CREATE OR REPLACE FUNCTION configure(
  p_name text, p_kind smallint, p_capacity bigint, p_whole bigint, p_ramp bigint, p_max_waiters bigint, p_ttl bigint, p_period bigint,
  p_numbered boolean, p_draining boolean, p_version bigint, p_protocol bigint,
  OUT r_problem text, OUT r_version bigint, OUT r_protocol bigint
) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; advanced record; notified bigint;
  largest bigint := greatest(p_whole, p_capacity);
BEGIN
  SELECT * INTO advanced FROM advance(p_name, true);
  IF advanced.r_status IS NULL THEN
    r_problem := 'missing';
    RETURN;
  END IF;
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name;
  r_version := s.version; r_protocol := s.protocol;
  r_problem := CASE
    WHEN p_version <> s.version THEN 'conflict'
    WHEN p_ttl <> s.ttl OR p_kind <> s.kind OR p_period <> s.period OR p_numbered <> s.numbered THEN 'fixed'
    WHEN p_protocol < s.protocol OR p_protocol > s.protocol + 1 THEN 'protocol'
    ELSE '' END;
  IF r_problem <> '' THEN
    RETURN;
  END IF;
  UPDATE semaphore x SET
    capacity = p_capacity, whole = p_whole, ramp = p_ramp, max_waiters = p_max_waiters, draining = p_draining, version = x.version + 1, protocol = p_protocol,
    ramp_from = least(effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last), p_capacity), ramp_at = s.last, notified_place = 0
  WHERE x.id = s.id;
  -- Tickets that can never be granted now are rejected.
  WITH rejected AS (
    DELETE FROM ticket t WHERE t.semaphore = s.id AND (p_draining OR t.least > largest AND largest > 0) RETURNING t.*
  ), added AS (
    SELECT add_results(s.id, array_agg(r.session), array_agg(CASE WHEN p_draining THEN 5 ELSE 4 END::smallint), array_agg(r.id), array_agg(0::bigint), array_agg(0::bigint),
        array_agg(''::text), array_agg(1), array_agg(0)) AS first_blocks,
      sum(r.least) AS wanted, count(*) AS waiting, array_agg(r.session) AS sessions
    FROM (SELECT * FROM rejected ORDER BY rejected.place) r HAVING count(*) > 0
  ), counted AS (
    UPDATE semaphore x SET waiting = x.waiting - a.waiting, wanted = x.wanted - a.wanted, first_place = NULL FROM added a WHERE x.id = s.id RETURNING a.sessions
  )
  SELECT count(pg_notify(channel(q.instance), p_name)) INTO notified
    FROM (SELECT DISTINCT o.instance FROM session o, counted c WHERE o.semaphore = s.id AND o.id = ANY (c.sessions)) q;
  PERFORM advance(p_name, false);
END
$$;

-- revoke_lease revokes a lease. Its problem is '', 'missing' or 'lease'.
CREATE OR REPLACE FUNCTION revoke_lease(p_name text, p_seq bigint, p_at_once boolean, p_note text, OUT r_problem text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; l lease%ROWTYPE; o session%ROWTYPE; advanced record;
BEGIN
  SELECT * INTO advanced FROM advance(p_name, true);
  IF advanced.r_status IS NULL THEN
    r_problem := 'missing';
    RETURN;
  END IF;
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name;
  SELECT x.* INTO l FROM lease x WHERE x.semaphore = s.id AND x.seq = p_seq;
  IF NOT FOUND THEN
    r_problem := 'lease';
    RETURN;
  END IF;
  r_problem := '';
  IF NOT l.revoked THEN
    UPDATE lease x SET revoked = true WHERE x.semaphore = s.id AND x.seq = p_seq;
    PERFORM add_results(s.id, ARRAY[l.session], ARRAY[7::smallint], ARRAY[0::bigint], ARRAY[p_seq], ARRAY[0::bigint], ARRAY[p_note], ARRAY[0], ARRAY[0]);
    PERFORM pg_notify(channel(x.instance), p_name) FROM session x WHERE x.semaphore = s.id AND x.id = l.session;
  END IF;
  IF p_at_once THEN
    DELETE FROM lease x WHERE x.semaphore = s.id AND x.seq = p_seq;
    SELECT x.* INTO o FROM session x WHERE x.semaphore = s.id AND x.id = l.session;
    UPDATE session x SET pooled = x.pooled - l.pooled::integer, recalled = x.recalled AND x.pooled > l.pooled::integer
      WHERE x.semaphore = s.id AND x.id = l.session;
    UPDATE semaphore x SET in_use = x.in_use - l.weight, leases = x.leases - 1, slots_in_use = free_slots(x.slots_in_use, l.slots),
      pools = x.pools - (l.pooled AND o.pooled = 1 AND NOT o.recalled)::integer, recalled = x.recalled - (l.pooled AND o.pooled = 1 AND o.recalled)::integer
      WHERE x.id = s.id;
  END IF;
  PERFORM advance(p_name, false);
END
$$;

-- delete_semaphore deletes a semaphore, if it has that version (0: any), and leaves a
-- tombstone. Its problem is '', 'missing' or 'conflict'; r_version is the stored one.
CREATE OR REPLACE FUNCTION delete_semaphore(p_name text, p_version bigint, OUT r_problem text, OUT r_version bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE;
BEGIN
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name FOR UPDATE;
  IF NOT FOUND THEN
    r_problem := 'missing';
    RETURN;
  END IF;
  r_version := s.version;
  IF p_version <> 0 AND p_version <> s.version THEN
    r_problem := 'conflict';
    RETURN;
  END IF;
  r_problem := '';
  DELETE FROM semaphore x WHERE x.id = s.id;
  DELETE FROM session x WHERE x.semaphore = s.id;
  DELETE FROM lease x WHERE x.semaphore = s.id;
  DELETE FROM ticket x WHERE x.semaphore = s.id;
  DELETE FROM spending x WHERE x.semaphore = s.id;
  INSERT INTO tombstone AS t (name, seq) VALUES (p_name, CASE
      WHEN s.server_started = pg_postmaster_start_time() THEN greatest(s.last_seq, s.last_session)
      ELSE skip_numbers(greatest(s.last_seq, s.last_session)) END)
    ON CONFLICT (name) DO UPDATE SET seq = greatest(t.seq, excluded.seq);
END
$$;

-- inspect returns a semaphore at one moment; null if there is none.
CREATE OR REPLACE FUNCTION inspect(p_name text) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  advanced record; snapshot json;
BEGIN
  SELECT * INTO advanced FROM advance(p_name, true);
  IF advanced.r_status IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT json_build_object(
      'Config', advanced.r_config, 'InUse', s.in_use, 'Effective', effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last),
      'Sessions', (SELECT json_agg(json_build_object('Session', x.id, 'Instance', x.instance, 'Client', x.client, 'Renewed', x.renewed,
          'Key', replace(x.key::text, '-', ''), 'Principal', x.principal) ORDER BY x.renewal) FROM session x WHERE x.semaphore = s.id),
      'Leases', (SELECT json_agg(json_build_object('Seq', x.seq, 'Session', x.session, 'Weight', x.weight, 'Since', x.since, 'Pooled', x.pooled,
          'Revoked', x.revoked, 'Slots', x.slots, 'Details', x.details) ORDER BY x.seq) FROM lease x WHERE x.semaphore = s.id AND x.seq >= s.floor),
      'Queue', (SELECT json_agg(json_build_object('Ticket', x.id, 'Session', x.session, 'Weight', x.weight, 'Since', x.since, 'Details', x.details)
          ORDER BY x.place) FROM ticket x WHERE x.semaphore = s.id AND x.place > s.served))
    INTO snapshot FROM semaphore s WHERE s.name = p_name;
  RETURN snapshot;
END
$$;

-- list_semaphores returns a page of the semaphores with a prefix that follow a name, in
-- the order of bytes, and changes nothing. p_end is above all names with the prefix. The
-- settings make it read the index in that order, and no more rows than it returns: the
-- planner does not know the limit.
CREATE OR REPLACE FUNCTION list_semaphores(
  p_prefix text, p_end text, p_after text, p_limit bigint,
  OUT r_name text, OUT r_config bigint[], OUT r_effective bigint, OUT r_in_use bigint, OUT r_leases bigint, OUT r_waiting bigint, OUT r_sessions bigint
) RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
  SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
  now_us bigint := now_micros();
BEGIN
  RETURN QUERY SELECT s.name,
      ARRAY[s.kind, s.capacity, s.whole, s.ramp, s.max_waiters, s.ttl, s.period, s.draining::integer, s.version, s.protocol, s.numbered::integer],
      effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, greatest(s.last, now_us)), s.in_use, s.leases, s.waiting, s.sessions
    FROM semaphore s WHERE s.name >= p_prefix AND s.name < p_end AND s.name > p_after AND starts_with(s.name, p_prefix)
    ORDER BY s.name LIMIT p_limit;
END
$$;
