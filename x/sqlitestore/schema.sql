-- The tables contain the values of fleet/protocol. Times are in microseconds since 1970,
-- or on the semaphore's own clock if the column's comment states it.
-- The views below are for operators.

CREATE TABLE semaphore (
  id           INTEGER PRIMARY KEY,
  name         TEXT NOT NULL UNIQUE,
  config       TEXT NOT NULL, -- JSON, as in protocol.Config
  ramp_from    INTEGER NOT NULL,
  ramp_at      INTEGER NOT NULL,
  last         INTEGER NOT NULL, -- time of the last write
  clock        INTEGER NOT NULL, -- the semaphore's own clock
  last_session INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL,
  renewals     INTEGER NOT NULL,
  in_use       INTEGER NOT NULL, -- this and the following: totals of the other tables, so that a list need not count
  leases       INTEGER NOT NULL,
  waiting      INTEGER NOT NULL,
  sessions     INTEGER NOT NULL
);

CREATE TABLE session (
  semaphore   INTEGER NOT NULL,
  id          INTEGER NOT NULL,
  instance    TEXT NOT NULL,
  client      TEXT NOT NULL, -- kind, host and process, as in protocol.Client.Encode
  key         TEXT NOT NULL, -- hexadecimal; a secret that every batch of the session contains
  principal   TEXT NOT NULL, -- the identity authenticated by a server
  seq         INTEGER NOT NULL, -- number of its last batch
  deadline    INTEGER NOT NULL, -- on the semaphore's clock
  renewed     INTEGER NOT NULL,
  renewal     INTEGER NOT NULL,
  last_result INTEGER NOT NULL,
  recalled    INTEGER NOT NULL,
  extended    INTEGER NOT NULL, -- 1: extended by a whole TTL when the file was opened, and not renewed since
  results     TEXT NOT NULL, -- JSON, the results that it has not acknowledged
  PRIMARY KEY (semaphore, id)
) WITHOUT ROWID;

CREATE TABLE lease (
  semaphore INTEGER NOT NULL,
  seq       INTEGER NOT NULL,
  session   INTEGER NOT NULL,
  weight    INTEGER NOT NULL,
  pooled    INTEGER NOT NULL,
  revoked   INTEGER NOT NULL,
  since     INTEGER NOT NULL,
  slots     TEXT NOT NULL, -- such as 0-3,7; empty unless permits are numbered
  details   TEXT NOT NULL, -- as in protocol.Details.Encode
  PRIMARY KEY (semaphore, seq)
) WITHOUT ROWID;

CREATE TABLE ticket (
  semaphore INTEGER NOT NULL,
  session   INTEGER NOT NULL,
  id        INTEGER NOT NULL,
  place     INTEGER NOT NULL, -- position in the queue: lower ones are served first
  weight    INTEGER NOT NULL,
  least     INTEGER NOT NULL, -- the minimum weight to grant
  until     INTEGER NOT NULL, -- on the semaphore's clock; 0: without limit
  pooled    INTEGER NOT NULL,
  since     INTEGER NOT NULL,
  details   TEXT NOT NULL,
  PRIMARY KEY (semaphore, session, id)
) WITHOUT ROWID;

CREATE TABLE spending ( -- for rates: the cost of grants, until their window has passed
  semaphore INTEGER NOT NULL,
  seq       INTEGER NOT NULL, -- number of the grant
  session   INTEGER NOT NULL, -- the session that may settle it
  until     INTEGER NOT NULL,
  weight    INTEGER NOT NULL,
  PRIMARY KEY (semaphore, seq)
) WITHOUT ROWID;

CREATE TABLE tombstone ( -- of a deleted name: its fences continue after seq
  name TEXT PRIMARY KEY,
  seq  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE VIEW semaphores AS SELECT
  name,
  CASE json_extract(config, '$.Kind') WHEN 0 THEN 'concurrency' WHEN 1 THEN 'rate' ELSE json_extract(config, '$.Kind') END AS kind,
  json_extract(config, '$.Capacity') AS capacity,
  in_use - (SELECT coalesce(sum(weight), 0) FROM spending
    WHERE spending.semaphore = semaphore.id AND until <= (julianday('now') - 2440587.5) * 86400e6) AS in_use,
  leases, waiting, sessions,
  json_extract(config, '$.Numbered') AS numbered,
  json_extract(config, '$.Draining') AS draining,
  json_extract(config, '$.TTL') / 1e6 AS ttl_seconds,
  json_extract(config, '$.Window') / 1e6 AS window_seconds,
  json_extract(config, '$.Ramp') AS ramp_per_second,
  json_extract(config, '$.MaxWaiters') AS max_waiters,
  json_extract(config, '$.Version') AS version,
  strftime('%Y-%m-%d %H:%M:%f', last / 1e6, 'unixepoch') AS changed
FROM semaphore ORDER BY name;

CREATE VIEW permits AS SELECT
  semaphore.name AS semaphore, lease.seq AS seq, session.instance AS instance, session.client AS client, lease.weight AS weight,
  strftime('%Y-%m-%d %H:%M:%f', lease.since / 1e6, 'unixepoch') AS since,
  strftime('%Y-%m-%d %H:%M:%f', session.renewed / 1e6, 'unixepoch') AS renewed,
  lease.pooled AS pooled, lease.revoked AS revoked, lease.slots AS slots, lease.details AS details, lease.session AS session
FROM lease
  JOIN semaphore ON semaphore.id = lease.semaphore
  JOIN session ON session.semaphore = lease.semaphore AND session.id = lease.session
ORDER BY semaphore.name, lease.seq;

CREATE VIEW waiters AS SELECT
  semaphore.name AS semaphore, row_number() OVER (PARTITION BY ticket.semaphore ORDER BY ticket.place) AS place,
  session.instance AS instance, session.client AS client, ticket.weight AS weight,
  strftime('%Y-%m-%d %H:%M:%f', ticket.since / 1e6, 'unixepoch') AS since,
  ticket.pooled AS pooled, ticket.details AS details, ticket.session AS session, ticket.id AS ticket
FROM ticket
  JOIN semaphore ON semaphore.id = ticket.semaphore
  JOIN session ON session.semaphore = ticket.semaphore AND session.id = ticket.session
ORDER BY semaphore.name, ticket.place;

CREATE VIEW sessions AS SELECT
  semaphore.name AS semaphore, session.id AS session, session.instance AS instance, session.client AS client, session.principal AS principal,
  strftime('%Y-%m-%d %H:%M:%f', session.renewed / 1e6, 'unixepoch') AS renewed,
  (SELECT count(*) FROM lease WHERE lease.semaphore = session.semaphore AND lease.session = session.id) AS permits,
  (SELECT count(*) FROM ticket WHERE ticket.semaphore = session.semaphore AND ticket.session = session.id) AS waiting
FROM session JOIN semaphore ON semaphore.id = session.semaphore
ORDER BY semaphore.name, session.id;
