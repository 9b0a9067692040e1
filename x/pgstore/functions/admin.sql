-- begin_session makes the semaphore, unless it is there, and opens a session on
-- it. Its problem is '', 'version', or 'missing' if it may not make it.
CREATE OR REPLACE FUNCTION begin_session(
  p_name text, p_instance text, p_kind smallint, p_capacity bigint, p_whole bigint, p_ramp bigint, p_max_waiters bigint, p_ttl bigint, p_period bigint,
  p_draining boolean, p_protocol bigint, p_make boolean,
  p_key uuid, p_principal text, p_highest bigint, -- of the opener
  OUT r_problem text, OUT r_session bigint, OUT r_config bigint[]
) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; turned record; grave bigint; now_us bigint;
BEGIN
  r_problem := '';
  LOOP
    SELECT * INTO turned FROM pass_time(p_name, true);
    EXIT WHEN turned.r_verdict IS NOT NULL;
    IF NOT p_make THEN
      r_problem := 'missing';
      RETURN;
    END IF;
    -- Who deletes it meanwhile has to have ended before the tombstone is read, so
    -- that comes after.
    now_us := now_micros();
    INSERT INTO semaphore (name, kind, capacity, whole, ramp, max_waiters, ttl, period, draining, version, protocol, ramp_from, ramp_at, last, oldest_seen, last_session, last_seq)
      VALUES (p_name, p_kind, p_capacity, p_whole, p_ramp, p_max_waiters, p_ttl, p_period, p_draining, 1, p_protocol, p_capacity, now_us, now_us, now_us,
        greatest(now_us, 0), greatest(now_us, 0))
      ON CONFLICT (name) DO NOTHING;
    IF FOUND THEN
      DELETE FROM tombstone t WHERE t.name = p_name RETURNING t.seq INTO grave;
      UPDATE semaphore x SET last_session = greatest(x.last_session, grave), last_seq = greatest(x.last_seq, grave) WHERE x.name = p_name;
    END IF;
  END LOOP;
  r_config := turned.r_config;
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name;
  IF p_protocol + 1 < s.protocol OR p_protocol > s.protocol + 1 THEN
    r_problem := 'version';
    RETURN;
  END IF;
  r_session := s.last_session + 1;
  INSERT INTO session (semaphore, id, instance, key, principal, deadline, seen, renewal)
    VALUES (s.id, r_session, p_instance, p_key, p_principal, s.clock + s.ttl, s.last, s.renewals + 1);
  UPDATE semaphore x SET last_session = r_session, last_seq = note_highest(x.last_seq, p_highest, x.last), renewals = x.renewals + 1, sessions = x.sessions + 1
    WHERE x.id = s.id;
END
$$;

-- pass_time brings the semaphore up to date with the time, or only to rest.
CREATE OR REPLACE FUNCTION pass_time(p_name text, p_begin boolean, OUT r_verdict smallint, OUT r_config bigint[]) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT r.r_verdict, r.r_config INTO r_verdict, r_config
    FROM turn(p_name, 0, NULL, '', 0, 0, 0, false, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false, -1, 0, p_begin) r;
END
$$;

-- configure changes the configuration. Its problem is '', 'missing', 'conflict',
-- 'fixed' or 'protocol'; r_version and r_protocol are what was found.
CREATE OR REPLACE FUNCTION configure(
  p_name text, p_kind smallint, p_capacity bigint, p_whole bigint, p_ramp bigint, p_max_waiters bigint, p_ttl bigint, p_period bigint,
  p_draining boolean, p_version bigint, p_protocol bigint,
  OUT r_problem text, OUT r_version bigint, OUT r_protocol bigint
) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; turned record; begun bigint;
  largest bigint := greatest(p_whole, p_capacity);
BEGIN
  SELECT * INTO turned FROM pass_time(p_name, true);
  IF turned.r_verdict IS NULL THEN
    r_problem := 'missing';
    RETURN;
  END IF;
  SELECT x.* INTO s FROM semaphore x WHERE x.name = p_name;
  r_version := s.version; r_protocol := s.protocol;
  r_problem := CASE
    WHEN p_version <> s.version THEN 'conflict'
    WHEN p_ttl <> s.ttl OR p_kind <> s.kind OR p_period <> s.period THEN 'fixed'
    WHEN p_protocol < s.protocol OR p_protocol > s.protocol + 1 THEN 'protocol'
    ELSE '' END;
  IF r_problem <> '' THEN
    RETURN;
  END IF;
  UPDATE semaphore x SET
    capacity = p_capacity, whole = p_whole, ramp = p_ramp, max_waiters = p_max_waiters, draining = p_draining, version = x.version + 1, protocol = p_protocol,
    ramp_from = least(effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last), p_capacity), ramp_at = s.last, hinted = 0
  WHERE x.id = s.id;
  -- Those in line who can never be served now are refused.
  WITH gone AS (
    DELETE FROM ticket t WHERE t.semaphore = s.id AND (p_draining OR t.least > largest AND largest > 0) RETURNING t.*
  ), told AS (
    SELECT tell(s.id, array_agg(g.session), array_agg(CASE WHEN p_draining THEN 5 ELSE 4 END::smallint), array_agg(g.id), array_agg(0::bigint), array_agg(0::bigint),
        array_agg(''::text), array_agg(1), array_agg(0)) AS begun,
      sum(g.least) AS wanted, count(*) AS waiting, array_agg(g.session) AS sessions
    FROM (SELECT * FROM gone ORDER BY gone.place) g HAVING count(*) > 0
  ), counted AS (
    UPDATE semaphore x SET waiting = x.waiting - o.waiting, wanted = x.wanted - o.wanted, first_place = NULL FROM told o WHERE x.id = s.id RETURNING o.sessions
  )
  SELECT count(pg_notify(channel(q.instance), p_name)) INTO begun
    FROM (SELECT DISTINCT o.instance FROM session o, counted c WHERE o.semaphore = s.id AND o.id = ANY (c.sessions)) q;
  PERFORM pass_time(p_name, false);
END
$$;

-- revoke takes a lease away. Its problem is '', 'missing' or 'lease'.
CREATE OR REPLACE FUNCTION revoke_lease(p_name text, p_seq bigint, p_at_once boolean, p_note text, OUT r_problem text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE; l lease%ROWTYPE; o session%ROWTYPE; turned record;
BEGIN
  SELECT * INTO turned FROM pass_time(p_name, true);
  IF turned.r_verdict IS NULL THEN
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
    PERFORM tell(s.id, ARRAY[l.session], ARRAY[7::smallint], ARRAY[0::bigint], ARRAY[p_seq], ARRAY[0::bigint], ARRAY[p_note], ARRAY[0], ARRAY[0]);
    PERFORM pg_notify(channel(x.instance), p_name) FROM session x WHERE x.semaphore = s.id AND x.id = l.session;
  END IF;
  IF p_at_once THEN
    DELETE FROM lease x WHERE x.semaphore = s.id AND x.seq = p_seq;
    SELECT x.* INTO o FROM session x WHERE x.semaphore = s.id AND x.id = l.session;
    UPDATE session x SET pooled = x.pooled - l.pooled::integer, recalled = x.recalled AND x.pooled > l.pooled::integer
      WHERE x.semaphore = s.id AND x.id = l.session;
    UPDATE semaphore x SET in_use = x.in_use - l.weight, leases = x.leases - 1,
      pools = x.pools - (l.pooled AND o.pooled = 1 AND NOT o.recalled)::integer, recalled = x.recalled - (l.pooled AND o.pooled = 1 AND o.recalled)::integer
      WHERE x.id = s.id;
  END IF;
  PERFORM pass_time(p_name, false);
END
$$;

-- remove deletes a semaphore and leaves a tombstone. It reports whether there was
-- one.
CREATE OR REPLACE FUNCTION remove(p_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  s semaphore%ROWTYPE;
BEGIN
  DELETE FROM semaphore x WHERE x.name = p_name RETURNING x.* INTO s;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM session x WHERE x.semaphore = s.id;
  DELETE FROM lease x WHERE x.semaphore = s.id;
  DELETE FROM ticket x WHERE x.semaphore = s.id;
  DELETE FROM spending x WHERE x.semaphore = s.id;
  INSERT INTO tombstone AS t (name, seq)
    VALUES (p_name, CASE WHEN s.server = pg_postmaster_start_time() THEN greatest(s.last_seq, s.last_session) ELSE leap(greatest(s.last_seq, s.last_session)) END)
    ON CONFLICT (name) DO UPDATE SET seq = greatest(t.seq, excluded.seq);
  RETURN true;
END
$$;

-- inspect is a semaphore at one moment; null if there is none.
CREATE OR REPLACE FUNCTION inspect(p_name text) RETURNS json
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
AS $$
DECLARE
  turned record; snapshot json;
BEGIN
  SELECT * INTO turned FROM pass_time(p_name, true);
  IF turned.r_verdict IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT json_build_object(
      'Config', turned.r_config, 'InUse', s.in_use, 'Effective', effective(s.capacity, s.ramp, s.ramp_from, s.ramp_at, s.last),
      'Sessions', (SELECT json_agg(json_build_object('Session', x.id, 'Instance', x.instance, 'Seen', x.seen,
          'Key', replace(x.key::text, '-', ''), 'Principal', x.principal) ORDER BY x.renewal) FROM session x WHERE x.semaphore = s.id),
      'Leases', (SELECT json_agg(json_build_object('Seq', x.seq, 'Session', x.session, 'Weight', x.weight, 'Since', x.since, 'Pooled', x.pooled,
          'Revoked', x.revoked, 'Meta', x.meta) ORDER BY x.seq) FROM lease x WHERE x.semaphore = s.id AND x.seq >= s.floor),
      'Queue', (SELECT json_agg(json_build_object('Ticket', x.id, 'Session', x.session, 'Weight', x.weight, 'Meta', x.meta) ORDER BY x.place)
          FROM ticket x WHERE x.semaphore = s.id AND x.place > s.served))
    INTO snapshot FROM semaphore s WHERE s.name = p_name;
  RETURN snapshot;
END
$$;

-- news is the semaphores on which sessions of an instance have some, and a number
-- by which new news can be told from old.
CREATE OR REPLACE FUNCTION news(p_instance text, OUT r_name text, OUT r_session bigint, OUT r_news bigint) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT s.name, x.id, x.news FROM session x JOIN semaphore s ON s.id = x.semaphore WHERE x.instance = p_instance AND x.news > x.answered
$$;
