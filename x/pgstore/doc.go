// Package pgstore stores fleet semaphores in PostgreSQL. Import it, and [fleet.Open]
// accepts
//
//	postgres://user:password@host:5432/database?sema_schema=sema&prefix=app:
//	postgresql:///database?host=a,b&port=5432,5432&target_session_attrs=read-write
//
// with all settings of pgx, pool_max_conns and TLS included. Parameters that neither
// pgx nor this package knows are settings for the server, which rejects unknown ones.
// The parameters of this package:
//
//	prefix        goes before the names of semaphores
//	sema_schema   the schema of the tables; default sema
//	sema_migrate  auto (creates and migrates the tables) or off; default auto
//	sema_listen   auto, poll, or the host:port of the server behind a pooler; default auto
//	sema_poll     the interval of polling where LISTEN is not possible; default 500ms
//
// A batch is one call of one function, in a transaction of its own, which locks the row
// of the semaphore. Batches of one semaphore are applied one after the other, and do
// not delay those of others. One semaphore reaches some tens of thousands of permits a
// second if many goroutines share a client, and some hundreds if each batch is for one.
// Where that is not enough use [fleet.ModePooled], or x/redisstore.
//
// # Guarantees
//
// What was acknowledged is committed. With the server's defaults it survives a crash.
// With synchronous_commit=off, which can be set in the URL, a crash loses the commits of
// the last three times wal_writer_delay (0.6 s).
//
// The same holds for a failover to a standby. With synchronous replication
// (synchronous_standby_names, and synchronous_commit on or higher) to every standby that
// may be promoted, nothing that was acknowledged is lost and no permit is granted twice.
// That is claimed for this set-up alone. [Store.Warnings], and the log when a store is
// opened, report other set-ups. A server whose wait for a standby was cancelled
// (pg_cancel_backend) replies all the same; such a reply does not count, and the batch
// is sent again.
//
// Otherwise commits that the new primary has not received are lost, and a permit of that
// time can be granted a second time. The first holder loses it with its next heartbeat,
// after a third of a TTL or, if the server cannot be reached, two thirds: a session that
// has a reply whose commit was lost, or was opened in that time, is unknown. Sequence
// numbers skip a billion whenever the server was restarted or is another one. So none is
// issued twice, and a guard that has seen the fence of the second holder rejects the
// first. (If a process of a server with synchronous_commit=off crashes, the server
// restarts itself, and that restart is not recognised.) An old primary that still serves
// clients is a second store: shut it off before the standby is promoted.
//
// A standby rejects all changes. With several hosts and
// target_session_attrs=read-write the next connection finds the primary. Connections to
// a host that has become unreachable are closed soon enough for leases to be kept, if
// each host has two seconds (connect_timeout) to accept a connection and one second
// (pool_ping_timeout) to reply on it. Those are the defaults.
//
// The clock is the server's, read after the lock is acquired. It may step.
//
// A server that is stopped, restarted or cut off during a batch has applied it or not;
// the client sends it again, and it is applied once. An operation returns
// [sema.ErrUnavailable] if there is no reply within 10 s, or the deadline of its context.
// statement_timeout and lock_timeout are honoured: nothing is changed then, and the
// client sends the batch again.
//
// # Notifications
//
// A session whose ticket is granted by another client's release is notified by NOTIFY,
// on a channel of its instance, in the transaction that grants it. Transactions that
// notify commit one after the other in the whole cluster, so a batch notifies only
// other sessions whose state it has changed. A store LISTENs on one connection for all
// its instances, of which a service (package server) has thousands. Behind a pooler that
// lends connections by the transaction (PgBouncer) LISTEN is not possible. Then the store
// polls for all of them every sema_poll, by an index, unless sema_listen names the server
// itself. A pooler is detected, and no statement is prepared there.
//
// # What is stored
//
// Operators can read the views, with psql for example:
//
//	SELECT * FROM sema.permits WHERE semaphore = 'db' ORDER BY since;
//
// The views are semaphores, permits, waiters and sessions. The tables under them have
// the state as in fleet/protocol, with sums beside it; only the functions may write to
// them. Table session has the keys with which batches can be sent for a session. So
// grant only the views to roles that only read (see [Migrate]). A transaction that is
// left open with the row of a semaphore locked stops that semaphore.
//
// Each batch writes a new version of the semaphore's row and of the session's, which
// stay on their pages (HOT) and are replaced by the next ones. Rows of leases and tickets
// are inserted and deleted: autovacuum is configured to remove deleted ones early. Long
// transactions and abandoned replication slots keep it from that, as everywhere.
//
// The tables are created by the first store that is opened, or by [Migrate], for which
// no superuser is needed. Table schema_version has their version. A program that is
// older than the tables fails to open them, and tables of unreleased versions of Sema
// are rejected. A semaphore stays until it is deleted, and then leaves a row in table
// tombstone. The fences of a new semaphore of that name are higher than those of the old.
//
// The database must have encoding UTF8 and default_transaction_isolation read
// committed. Tested with PostgreSQL 15; nothing newer than 13 is used.
package pgstore
