-- The tables are the words of fleet/protocol, and its numbers: times are
-- microseconds since 1970, or on the semaphore's own clock where it says so.
-- The views after them are for people.
--
-- Nothing that changes with every batch is in an index, and pages are kept half
-- empty, so that an update stays on its page (HOT) and leaves nothing behind.

CREATE TABLE semaphore (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text COLLATE "C" NOT NULL UNIQUE,
  -- The configuration.
  kind            smallint NOT NULL, -- 0: concurrency, 1: rate
  capacity        bigint NOT NULL,
  whole           bigint NOT NULL,
  ramp            bigint NOT NULL,
  max_waiters     bigint NOT NULL,
  ttl             bigint NOT NULL,
  period          bigint NOT NULL, -- the window of a rate
  draining        boolean NOT NULL,
  version         bigint NOT NULL,
  protocol        bigint NOT NULL,
  -- The state.
  ramp_from       bigint NOT NULL,
  ramp_at         bigint NOT NULL,
  last            bigint NOT NULL, -- when somebody last spoke
  clock           bigint NOT NULL DEFAULT 0, -- its own
  last_session    bigint NOT NULL,
  last_seq        bigint NOT NULL,
  renewals        bigint NOT NULL DEFAULT 0,
  server          timestamptz NOT NULL DEFAULT pg_postmaster_start_time(), -- when that was started which served it last
  moved           bigint NOT NULL DEFAULT 0, -- how many renewals there were when that one did so first
  -- Sums and bounds, so that a batch need not look at what it does not touch.
  in_use          bigint NOT NULL DEFAULT 0, -- weights of leases and spending
  leases          bigint NOT NULL DEFAULT 0,
  sessions        bigint NOT NULL DEFAULT 0,
  waiting         bigint NOT NULL DEFAULT 0, -- tickets in line
  wanted          numeric NOT NULL DEFAULT 0, -- the least that they want
  pools           bigint NOT NULL DEFAULT 0, -- sessions that have blocks and were not told that others wait
  recalled        bigint NOT NULL DEFAULT 0, -- and that were
  pooled          boolean NOT NULL DEFAULT false, -- somebody has asked for a block
  floor           bigint NOT NULL DEFAULT 0, -- no lease has a lower seq
  last_place      bigint NOT NULL DEFAULT 0, -- the last in line that was given
  served          bigint NOT NULL DEFAULT 0, -- nobody in line has a place up to this one
  first_place     bigint, -- of the first in line; null: nobody, or not known
  first_session   bigint,
  first_least     bigint,
  first_until     bigint,
  hinted          bigint NOT NULL DEFAULT 0, -- the place of the first in line that was told to watch the time
  oldest          bigint NOT NULL DEFAULT 0, -- the session that was silent longest; 0: not known
  oldest_seen     bigint NOT NULL DEFAULT 0,
  oldest_deadline bigint NOT NULL DEFAULT 0  -- no session has an earlier one
) WITH (fillfactor = 50);

CREATE TABLE session (
  semaphore   bigint NOT NULL,
  id          bigint NOT NULL,
  instance    text NOT NULL,
  seq         bigint NOT NULL DEFAULT 0, -- of its last batch
  deadline    bigint NOT NULL, -- on the semaphore's clock
  seen        bigint NOT NULL,
  renewal     bigint NOT NULL,
  waiting     bigint NOT NULL DEFAULT 0, -- its tickets in line
  tries       bigint NOT NULL DEFAULT 0, -- of those, the ones that would not wait
  pooled      bigint NOT NULL DEFAULT 0, -- its leases that are blocks
  recalled    boolean NOT NULL DEFAULT false,
  news        bigint NOT NULL DEFAULT 0, -- how often there was some
  answered    bigint NOT NULL DEFAULT 0, -- up to which of it was answered
  last_result   bigint NOT NULL DEFAULT 0,
  result_n      bigint[] NOT NULL DEFAULT '{}', -- results that it has not acknowledged, side by side
  result_kind   smallint[] NOT NULL DEFAULT '{}',
  result_ticket bigint[] NOT NULL DEFAULT '{}',
  result_lease  bigint[] NOT NULL DEFAULT '{}',
  result_weight bigint[] NOT NULL DEFAULT '{}',
  result_note   text[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (semaphore, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0);

CREATE INDEX session_instance ON session (instance);

CREATE TABLE lease (
  semaphore bigint NOT NULL,
  seq       bigint NOT NULL,
  session   bigint NOT NULL,
  weight    bigint NOT NULL,
  since     bigint NOT NULL,
  pooled    boolean NOT NULL,
  revoked   boolean NOT NULL DEFAULT false,
  meta      text NOT NULL,
  PRIMARY KEY (semaphore, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE ticket (
  semaphore bigint NOT NULL,
  place     bigint NOT NULL, -- in line: who has a lower one comes first
  session   bigint NOT NULL,
  id        bigint NOT NULL,
  weight    bigint NOT NULL,
  least     bigint NOT NULL, -- what will do of the weight
  until     bigint NOT NULL, -- on the semaphore's clock; 0: without limit
  since     bigint NOT NULL,
  try       boolean NOT NULL,
  pooled    boolean NOT NULL,
  meta      text NOT NULL,
  PRIMARY KEY (semaphore, place),
  UNIQUE (semaphore, session, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE spending ( -- of a rate: what was granted and is not back yet
  semaphore bigint NOT NULL,
  until     bigint NOT NULL,
  seq       bigint NOT NULL,
  weight    bigint NOT NULL,
  PRIMARY KEY (semaphore, until, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE tombstone ( -- of a name that was deleted: its fences go on after seq
  name text COLLATE "C" PRIMARY KEY,
  seq  bigint NOT NULL
);

CREATE VIEW semaphores AS SELECT
  name,
  CASE kind WHEN 0 THEN 'concurrency' WHEN 1 THEN 'rate' ELSE kind::text END AS kind,
  capacity, in_use, waiting, sessions, draining,
  ttl / 1e6::float8 AS ttl_seconds, period / 1e6::float8 AS window_seconds, ramp AS ramp_per_second, max_waiters, version,
  to_timestamp(last / 1e6::float8) AS changed
FROM semaphore ORDER BY name;

CREATE VIEW permits AS SELECT
  s.name AS semaphore, l.seq, o.instance, l.weight, to_timestamp(l.since / 1e6::float8) AS since, to_timestamp(o.seen / 1e6::float8) AS renewed,
  l.pooled, l.revoked, l.meta, l.session
FROM lease l JOIN semaphore s ON s.id = l.semaphore JOIN session o ON o.semaphore = l.semaphore AND o.id = l.session
ORDER BY s.name, l.seq;

CREATE VIEW waiters AS SELECT
  s.name AS semaphore, row_number() OVER (PARTITION BY t.semaphore ORDER BY t.place) AS place, o.instance, t.weight,
  to_timestamp(t.since / 1e6::float8) AS since, t.try, t.pooled, t.meta, t.session, t.id AS ticket
FROM ticket t JOIN semaphore s ON s.id = t.semaphore JOIN session o ON o.semaphore = t.semaphore AND o.id = t.session
ORDER BY s.name, t.place;

CREATE VIEW sessions AS SELECT
  s.name AS semaphore, o.id AS session, o.instance, to_timestamp(o.seen / 1e6::float8) AS renewed,
  (SELECT count(*) FROM lease l WHERE l.semaphore = o.semaphore AND l.session = o.id) AS permits, o.waiting
FROM session o JOIN semaphore s ON s.id = o.semaphore
ORDER BY s.name, o.id;
