-- A session has an owner, and a try is never queued.
--
-- Sessions that are open get a random key, which no client has, so that nothing can
-- be sent for them: they expire after a TTL, and until then what they hold stays held.
-- Programs of the earlier version stop with an error that names the schema, because
-- the functions that they call are gone.

DROP FUNCTION IF EXISTS turn(
  text, bigint, bigint, bigint, boolean, smallint[], bigint[], bigint[], bigint[], bigint[], boolean[], boolean[], text[], bigint[], integer[], boolean, bigint, bigint, boolean);
DROP FUNCTION IF EXISTS begin_session(text, text, smallint, bigint, bigint, bigint, bigint, bigint, bigint, boolean, bigint, boolean);
DROP FUNCTION IF EXISTS tell(bigint, bigint[], smallint[], bigint[], bigint[], bigint[], text[], integer[], integer[], integer[]);

DROP VIEW waiters;

ALTER TABLE session
  DROP COLUMN tries,
  ADD COLUMN key uuid NOT NULL DEFAULT gen_random_uuid(), -- the owner's secret: in no view
  ADD COLUMN principal text COLLATE "C" NOT NULL DEFAULT ''; -- as a server has authenticated it; empty: the program reaches the database itself
ALTER TABLE session ALTER COLUMN key DROP DEFAULT, ALTER COLUMN principal DROP DEFAULT;

ALTER TABLE ticket DROP COLUMN try;

UPDATE semaphore SET oldest = 0, oldest_seen = 0; -- which was only that of the oldest, see find_oldest

COMMENT ON COLUMN session.key IS 'Secret of the client that opened the session. Grant SELECT on the views, not on this table, to roles that only read.';
COMMENT ON COLUMN semaphore.oldest IS 'The session that was renewed longest ago; 0: not known.';
COMMENT ON COLUMN semaphore.oldest_seen IS 'No session was seen earlier.';
COMMENT ON COLUMN semaphore.oldest_deadline IS 'No session has an earlier deadline.';

CREATE OR REPLACE VIEW permits AS SELECT
  s.name AS semaphore, l.seq, o.instance, l.weight, to_timestamp(l.since / 1e6::float8) AS since, to_timestamp(o.seen / 1e6::float8) AS renewed,
  l.pooled, l.revoked, l.meta, l.session, o.principal
FROM lease l JOIN semaphore s ON s.id = l.semaphore JOIN session o ON o.semaphore = l.semaphore AND o.id = l.session
ORDER BY s.name, l.seq;

CREATE VIEW waiters AS SELECT
  s.name AS semaphore, row_number() OVER (PARTITION BY t.semaphore ORDER BY t.place) AS place, o.instance, t.weight,
  to_timestamp(t.since / 1e6::float8) AS since, t.pooled, t.meta, t.session, t.id AS ticket, o.principal
FROM ticket t JOIN semaphore s ON s.id = t.semaphore JOIN session o ON o.semaphore = t.semaphore AND o.id = t.session
ORDER BY s.name, t.place;

CREATE OR REPLACE VIEW sessions AS SELECT
  s.name AS semaphore, o.id AS session, o.instance, to_timestamp(o.seen / 1e6::float8) AS renewed,
  (SELECT count(*) FROM lease l WHERE l.semaphore = o.semaphore AND l.session = o.id) AS permits, o.waiting, o.principal
FROM session o JOIN semaphore s ON s.id = o.semaphore
ORDER BY s.name, o.id;
