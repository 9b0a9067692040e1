// Package pgstore is an engine for fleet semaphores in PostgreSQL, for those who
// run one already. Import it, and [fleet.Open] knows
//
//	postgres://user:password@host:5432/database?sema_schema=sema&prefix=app:
//	postgresql:///database?host=a,b&port=5432,5432&target_session_attrs=read-write
//
// with all that pgx understands, pool_max_conns and TLS included; what neither
// it nor this package knows is a setting for the server, which refuses those it
// does not know. This package's own:
//
//	prefix        is put before the names of semaphores
//	sema_schema   where the tables are; sema unless told
//	sema_migrate  auto (makes and updates them) or off
//	sema_listen   auto, poll, or the host:port of the server behind a pooler
//	sema_poll     how often to look for news where there is no LISTEN; 500ms
//
// A batch is one call of one function, which locks the row of the semaphore and
// is one transaction. All of a semaphore's callers take turns; those of others do
// not wait for them. Some tens of thousands of permits a second of one semaphore
// come and go that way if many goroutines share a client, some hundreds if each
// call is for one. Where that is not enough use [fleet.ModePooled], or x/redisstore.
//
// # What it promises
//
// What was acknowledged is committed. With the server's own defaults that
// survives a crash. With synchronous_commit=off, which can be set in the URL, the
// last of it may be gone after one: up to three times wal_writer_delay, 0.6 s.
//
// The same holds for a failover to a standby. With synchronous replication
// (synchronous_standby_names, and synchronous_commit not below on) to every
// standby that may be promoted, nothing that was acknowledged is lost and nobody
// is let in twice: zero over-admission is claimed for that alone. [Store.Warnings],
// and the log when a store is opened, say if it is not so. A server whose wait for
// a standby was cancelled (pg_cancel_backend) answers all the same; such an answer
// does not count, and the batch is said again.
//
// Otherwise what the new primary has not received is forgotten, and a permit of
// that time can be granted a second time. Its holder loses it when it next
// speaks, after a third of a TTL or, if it cannot, two thirds: who has been
// answered more than the server knows of, or was opened in that time, is told that
// it is not known. Numbers leap whenever the server is another, or was started
// again: none is given twice, and a guard that has seen the fence of a new holder
// refuses the old one. (Only a server with synchronous_commit=off that restarts by
// itself, when one of its processes has crashed, cannot be told from what it was.)
// And an old primary that goes on serving clients who still reach it is a second
// engine: shut it off before the standby is promoted.
//
// A standby, and a primary that became one, refuses; with several hosts and
// target_session_attrs=read-write the next connection finds the primary. A host
// that is gone without a word is given up in time for leases to be kept, if each
// host has two seconds (connect_timeout) to answer in and a connection one
// (pool_ping_timeout), as they have unless told.
//
// The clock is the server's, read after the lock. It may step.
//
// A server that is stopped, restarted or cut off in the middle of a batch has done
// it or not; the client says it again, and it is not done twice. An operation returns
// [sema.ErrUnavailable] if there is no reply within 10 s, or the deadline of its
// context. statement_timeout
// and lock_timeout are honoured: nothing is done then, and it is tried again.
//
// # Hints
//
// Who is granted something by another's release is told by NOTIFY, on a channel of
// its instance, by the transaction that granted it. Transactions that notify commit
// one after the other in a whole cluster, so this happens only when somebody else
// has news. A store LISTENs on one connection for all instances that listen by it,
// of which a server for others (package server) has thousands. Behind a pooler that
// lends connections by the transaction (PgBouncer) that cannot be: then it looks for
// all of them every sema_poll, by an index, unless sema_listen names the server
// itself. A pooler is noticed by itself, and nothing is prepared there.
//
// # What is in the database
//
// Operators can read the views, with psql for example:
//
//	SELECT * FROM sema.permits WHERE semaphore = 'db' ORDER BY since;
//
// The views semaphores, permits, waiters and sessions are for people. The tables
// under them are the state as in fleet/protocol, with sums beside it; only the
// functions may write to them. Table session has the keys with which batches can be
// sent for a session: grant roles that only read the views (see [Migrate]). Who holds the row of a semaphore locked, in a
// transaction that is left open, stops it.
//
// Each batch makes a new version of the semaphore's row and of the session's, which
// stay on their pages (HOT) and are cleared away by the next ones. Leases and
// tickets are rows that come and go: autovacuum clears them away, and is told to do
// so early. Long transactions and abandoned replication slots keep it from that, as
// everywhere.
//
// The tables are made by whoever opens the store first, or by [Migrate], for which
// no superuser is needed. A program that is older than the tables refuses to start.
// A semaphore stays until it is deleted, and then leaves a row in table tombstone:
// where its fences have come to.
//
// The database has to be in UTF8, default_transaction_isolation read committed.
// Tested with PostgreSQL 15; nothing newer than 13 is used.
package pgstore
