-- The tables have the state of fleet/protocol, in its terms and units: times are
-- microseconds since 1970 on the server's clock, or on the semaphore's own clock where
-- that is noted. The views at the end are for operators.
--
-- No column that changes with every batch is in an index, and pages are kept half
-- empty, so that an update stays on its page (HOT) and leaves no obsolete index entries.

CREATE TABLE semaphore (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text COLLATE "C" NOT NULL UNIQUE,
  -- The configuration.
  kind            smallint NOT NULL, -- 0: concurrency, 1: rate
  capacity        bigint NOT NULL,
  whole           bigint NOT NULL,
  ramp            bigint NOT NULL,
  max_waiters     bigint NOT NULL, -- 0: no bound, -1: none
  ttl             bigint NOT NULL,
  period          bigint NOT NULL, -- the window of a rate
  numbered        boolean NOT NULL,
  draining        boolean NOT NULL,
  version         bigint NOT NULL,
  protocol        bigint NOT NULL,
  -- The state.
  ramp_from       bigint NOT NULL,
  ramp_at         bigint NOT NULL,
  last            bigint NOT NULL, -- the time of the last call
  clock           bigint NOT NULL DEFAULT 0, -- the semaphore's own clock
  last_session    bigint NOT NULL,
  last_seq        bigint NOT NULL,
  renewals        bigint NOT NULL DEFAULT 0,
  server_started  timestamptz NOT NULL DEFAULT pg_postmaster_start_time(), -- of the server that applied the last batch
  server_renewals bigint NOT NULL DEFAULT 0, -- renewals before the first batch on that server
  -- Sums and bounds, so that a batch reads only the rows that it changes.
  in_use          bigint NOT NULL DEFAULT 0, -- weights of leases and spending
  leases          bigint NOT NULL DEFAULT 0,
  sessions        bigint NOT NULL DEFAULT 0,
  waiting         bigint NOT NULL DEFAULT 0, -- tickets in the queue
  wanted          numeric NOT NULL DEFAULT 0, -- the sum of their least weights
  pools           bigint NOT NULL DEFAULT 0, -- sessions that have pooled leases and are not recalled
  recalled        bigint NOT NULL DEFAULT 0, -- sessions that are recalled
  pooled          boolean NOT NULL DEFAULT false, -- a pooled acquire was queued at some time
  floor           bigint NOT NULL DEFAULT 0, -- no lease, and no spending, has a lower seq
  slots_in_use    bit varying NOT NULL DEFAULT '', -- of a numbered semaphore: a bit for each slot
  last_place      bigint NOT NULL DEFAULT 0, -- the highest place in the queue that was assigned
  served          bigint NOT NULL DEFAULT 0, -- no ticket in the queue has a place up to this one
  first_place     bigint, -- of the first ticket in the queue; null: there is none, or it is to be looked up
  first_session   bigint,
  first_least     bigint,
  first_until     bigint,
  notified_place  bigint NOT NULL DEFAULT 0, -- the first ticket whose session was notified that time alone will grant it
  oldest          bigint NOT NULL DEFAULT 0, -- the session that was renewed longest ago; 0: to be looked up
  oldest_renewed  bigint NOT NULL DEFAULT 0, -- no session was renewed earlier
  oldest_deadline bigint NOT NULL DEFAULT 0  -- no session has an earlier deadline
) WITH (fillfactor = 50);

CREATE TABLE session (
  semaphore     bigint NOT NULL,
  id            bigint NOT NULL,
  instance      text NOT NULL,
  client        text NOT NULL, -- protocol.Client.Encode
  key           uuid NOT NULL, -- the owner's secret: in no view
  principal     text COLLATE "C" NOT NULL, -- the owner's identity, authenticated by a service; empty: the client connects to the database itself
  seq           bigint NOT NULL DEFAULT 0, -- of its last batch
  deadline      bigint NOT NULL, -- on the semaphore's clock
  renewed       bigint NOT NULL,
  renewal       bigint NOT NULL,
  waiting       bigint NOT NULL DEFAULT 0, -- its tickets in the queue
  pooled        bigint NOT NULL DEFAULT 0, -- its pooled leases
  recalled      boolean NOT NULL DEFAULT false,
  notifications bigint NOT NULL DEFAULT 0, -- counts them
  delivered     bigint NOT NULL DEFAULT 0, -- of those, the ones that replies have made unnecessary
  last_result   bigint NOT NULL DEFAULT 0,
  result_n      bigint[] NOT NULL DEFAULT '{}', -- results that are not acknowledged, in parallel arrays
  result_kind   smallint[] NOT NULL DEFAULT '{}',
  result_ticket bigint[] NOT NULL DEFAULT '{}',
  result_lease  bigint[] NOT NULL DEFAULT '{}',
  result_weight bigint[] NOT NULL DEFAULT '{}',
  result_text   text[] NOT NULL DEFAULT '{}', -- granted: the slots; revoked: the note
  PRIMARY KEY (semaphore, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0);

CREATE INDEX session_instance ON session (instance);

COMMENT ON COLUMN session.key IS 'Secret of the client that opened the session. Grant SELECT on the views, not on this table, to roles that only read.';

CREATE TABLE lease (
  semaphore bigint NOT NULL,
  seq       bigint NOT NULL,
  session   bigint NOT NULL,
  weight    bigint NOT NULL,
  since     bigint NOT NULL,
  pooled    boolean NOT NULL,
  revoked   boolean NOT NULL DEFAULT false,
  details   text NOT NULL, -- protocol.Details.Encode
  slots     text NOT NULL DEFAULT '', -- of a numbered semaphore, as protocol.Slots
  PRIMARY KEY (semaphore, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE ticket (
  semaphore bigint NOT NULL,
  place     bigint NOT NULL, -- in the queue, which is served in ascending order
  session   bigint NOT NULL,
  id        bigint NOT NULL,
  weight    bigint NOT NULL,
  least     bigint NOT NULL, -- the weight that suffices
  until     bigint NOT NULL, -- on the semaphore's clock; 0: without limit
  since     bigint NOT NULL,
  pooled    boolean NOT NULL,
  details   text NOT NULL, -- protocol.Details.Encode
  PRIMARY KEY (semaphore, place),
  UNIQUE (semaphore, session, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE spending ( -- what the grants of a rate have taken within the window
  semaphore bigint NOT NULL,
  seq       bigint NOT NULL, -- of the grant; ascends with until
  session   bigint NOT NULL, -- that it was granted to, and that alone may settle it
  until     bigint NOT NULL,
  weight    bigint NOT NULL,
  PRIMARY KEY (semaphore, seq)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE tombstone ( -- of a name that was deleted: a new semaphore of that name has higher numbers than seq
  name text COLLATE "C" PRIMARY KEY,
  seq  bigint NOT NULL
);

CREATE VIEW semaphores AS SELECT
  name,
  CASE kind WHEN 0 THEN 'concurrency' WHEN 1 THEN 'rate' ELSE kind::text END AS kind,
  capacity, in_use, waiting, sessions, draining,
  ttl / 1e6::float8 AS ttl_seconds, period / 1e6::float8 AS window_seconds, ramp AS ramp_per_second,
  max_waiters, numbered, version, to_timestamp(last / 1e6::float8) AS changed
FROM semaphore ORDER BY name;

CREATE VIEW permits AS SELECT
  s.name AS semaphore, l.seq, o.instance, o.client, o.principal, l.weight, l.slots,
  to_timestamp(l.since / 1e6::float8) AS since, to_timestamp(o.renewed / 1e6::float8) AS renewed,
  l.pooled, l.revoked, l.details, l.session
FROM lease l JOIN semaphore s ON s.id = l.semaphore JOIN session o ON o.semaphore = l.semaphore AND o.id = l.session
ORDER BY s.name, l.seq;

CREATE VIEW waiters AS SELECT
  s.name AS semaphore, row_number() OVER (PARTITION BY t.semaphore ORDER BY t.place) AS place, o.instance, o.client, o.principal, t.weight,
  to_timestamp(t.since / 1e6::float8) AS since, t.pooled, t.details, t.session, t.id AS ticket
FROM ticket t JOIN semaphore s ON s.id = t.semaphore JOIN session o ON o.semaphore = t.semaphore AND o.id = t.session
ORDER BY s.name, t.place;

CREATE VIEW sessions AS SELECT
  s.name AS semaphore, o.id AS session, o.instance, o.client, o.principal, to_timestamp(o.renewed / 1e6::float8) AS renewed,
  (SELECT count(*) FROM lease l WHERE l.semaphore = o.semaphore AND l.session = o.id) AS permits, o.waiting
FROM session o JOIN semaphore s ON s.id = o.semaphore
ORDER BY s.name, o.id;
