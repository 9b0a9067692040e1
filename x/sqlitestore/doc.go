// Package sqlitestore stores fleet semaphores in a SQLite file, without a server. With
// this package imported, [fleet.Open] accepts
//
//	sqlite:///var/lib/app/fleet.db?prefix=app:&synchronous=full
//	sqlite:relative/path.db
//
// A file has one owner, the process that has it open. Clients in that process share
// it, and other processes use its semaphores through the owner. The prefix is prepended
// to the names of semaphores.
//
// # Guarantees
//
// Acknowledged operations are on the disk. Requests that arrive during a commit share
// the next commit (group commit), so that they wait for the disk once. With
// synchronous=normal, requests do not wait for the disk: acknowledged operations
// survive a crash of the process, but the last ones may be lost on a power failure, and
// with them the record of holders. In that case wait for a TTL before the store is
// started again.
//
// A process that is killed, at any moment, leaves a file that the next owner can open
// and use. When the file is opened again, each session that was alive gets a whole TTL,
// because heartbeats are written only together with other changes. A session gets this
// extension once until its next heartbeat.
//
// On a full or failing disk requests fail with [sema.ErrUnavailable] (and with
// [fleet.FaultFull] if the disk is full), and change nothing. The store recovers by
// itself when there is space again. On Linux it allocates up to 1 MB beyond the end of
// the file in advance. So the write-ahead log can be checkpointed and reused even on a
// disk that the log has filled.
//
// # Read-only access
//
// With mode=ro in the URL ([OpenReader]) semaphores can be listed and inspected, also
// while another process owns the file. The file is neither created, locked nor changed.
//
// # Content of the file
//
// Any process may read the file at any time, for example with the sqlite3 shell:
//
//	sqlite3 -readonly -box fleet.db 'SELECT * FROM permits'
//
// The views semaphores, permits, waiters and sessions are meant for operators. The
// tables under them contain the state as in fleet/protocol. Only the owner may write:
// it caches what it has written and does not read it again. While a reader keeps a
// transaction open, the write-ahead log cannot be reused and grows. A semaphore stays
// until it is deleted. It then leaves a row in table tombstone, so that its fences
// continue if the name is used again.
//
// The files fleet.db-wal and fleet.db-shm are part of the database and are removed when
// it is closed properly. The file fleet.db-owner is locked by the owner and need not be
// removed.
//
// The database has to be on a local file system and has one name: a file with several
// hard links is rejected and, on Linux, a file that another process has open under
// another path. Do not move or remove the database while it has an owner, and copy it
// with the shell's .backup. A copy is a past state: wait for a TTL before it is used.
package sqlitestore
