// Package pgstore stores fleet semaphores in PostgreSQL. With this package imported,
// [fleet.Open] accepts
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
// A batch is one call of one function, in its own transaction, which locks the row of
// the semaphore. Batches of one semaphore are applied one after the other, and do not
// delay those of other semaphores. One semaphore grants some tens of thousands of permits
// a second if many goroutines share a client. It grants some hundreds if each batch
// contains one acquire. If that is not enough, use [fleet.ModePooled] or x/redisstore.
//
// # Guarantees
//
// A reply is sent after the commit. With the server's defaults a commit survives a crash.
// With synchronous_commit=off, which can be set in the URL, a crash loses the commits of
// the last three times wal_writer_delay (0.6 s).
//
// Whether commits survive a failover depends on the replication. No acknowledged commit is
// lost, and no permit is granted twice, with synchronous replication to every standby that
// may be promoted: synchronous_standby_names, and synchronous_commit on or higher. This
// guarantee holds only for that setup. [Store.Warnings], and the log when a store is opened,
// report other setups. If an administrator cancels the wait for a standby
// (pg_cancel_backend), the server replies as usual. The store ignores that reply and sends
// the batch again.
//
// With other replication, commits that the new primary has not received are lost, and their
// permits can be granted a second time. A session is unknown to the new primary if the
// session was opened by a lost commit, or has a reply to one. Its client loses its permits
// with the next heartbeat, after a third of a TTL. If the client cannot reach the server,
// it loses them after two thirds. Sequence numbers skip a billion whenever the server was
// restarted or is another one. So no number is issued twice, and a guard that has received
// the fence of the second holder rejects the first one.
//
// One restart is not detected: with synchronous_commit=off, a server restarts itself after
// one of its processes has crashed. An old primary that still serves clients is a second
// store: shut it off before the standby is promoted.
//
// A standby rejects all changes. With several hosts and
// target_session_attrs=read-write the next connection finds the primary. By default, a host
// has two seconds (connect_timeout) to accept a connection, and one second
// (pool_ping_timeout) to reply on it. With these values, connections to an unreachable host
// are closed soon enough for holders to keep their leases.
//
// The clock is the server's, read after the lock is acquired. It may step.
//
// If a server is stopped, restarted or cut off during a batch, it is unknown whether the
// batch was applied. The client sends the batch again, and it is applied once. An operation
// returns [sema.ErrUnavailable] if there is no reply within 10 s, or before the deadline of
// its context. If statement_timeout or lock_timeout ends a batch, nothing is changed, and
// the client sends the batch again.
//
// # Notifications
//
// If a batch grants a ticket of another client, its transaction also notifies that client,
// by NOTIFY on a channel of its instance. Transactions with a NOTIFY commit one after the
// other in the whole cluster, so a batch notifies only sessions whose state it has changed.
// A store LISTENs on one connection for all its instances, of which a service (package
// server) has thousands.
//
// LISTEN is not possible behind a pooler that lends connections by the transaction
// (PgBouncer). The store detects a pooler, and then prepares no statements and polls for all
// instances every sema_poll, by an index. If sema_listen names the server itself, the store
// LISTENs there instead.
//
// # What is stored
//
// Operators can read the views, with psql for example:
//
//	SELECT * FROM sema.permits WHERE semaphore = 'db' ORDER BY since;
//
// The views are semaphores, permits, waiters and sessions. The tables under them contain
// the state as in fleet/protocol, and sums of it. Only the functions may write to them.
// Table session contains the keys with which batches can be sent for a session. So grant
// only the views to roles that only read (see [Migrate]). A transaction that has locked the
// row of a semaphore and is left open blocks that semaphore.
//
// Each batch writes a new version of the semaphore's row and of the session's row. These
// versions stay on their pages (HOT) and are replaced by the next ones. Rows of leases and
// tickets are inserted and deleted; autovacuum is configured to remove deleted rows early.
// Long transactions and abandoned replication slots prevent that, as in any database.
//
// The tables are created by the first store that is opened, or by [Migrate]. No superuser
// is needed. Table schema_version contains the version of the tables. A program that is
// older than the tables fails to open them, and tables of unreleased versions of Sema are
// rejected. A semaphore stays until it is deleted, and then leaves a row in table
// tombstone. A new semaphore of that name has higher fences than the deleted one.
//
// The database must have encoding UTF8 and default_transaction_isolation read
// committed. Tested with PostgreSQL 15; nothing newer than 13 is used.
package pgstore
