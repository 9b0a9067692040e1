// Package sqlitestore is an engine for fleet semaphores that needs no server: a
// file of SQLite's. Import it, and [fleet.Open] knows
//
//	sqlite:///var/lib/app/fleet.db?prefix=app:&synchronous=full
//	sqlite:relative/path.db
//
// A file has one owner, the process that has it open; clients in that process
// share it, and others reach its semaphores through it. The prefix is put before
// the names of semaphores.
//
// # What it promises
//
// What was acknowledged is on the disk. Requests that arrive while others are
// being written are written together, so that durability costs one wait for the
// disk for all of them. With synchronous=normal nobody waits for it: what was
// acknowledged outlives the process, but the last of it may be gone after a loss
// of power, and with it the knowledge of who holds what; then wait for a TTL
// before the engine is started again.
//
// A process that is killed, at whatever moment, leaves a file that the next one
// opens and goes on with. Sessions that lived when it died live on, each for a
// whole TTL from then: their signs of life are not written down until something
// else is.
//
// On a full or failing disk requests fail with [sema.ErrUnavailable] (and
// [fleet.FaultFull] if it is full), and nothing is half done. It continues by itself
// when there is room again. On Linux up to 1 MB behind the end of the file is
// allocated beforehand, so that the write-ahead log can be carried over and reused
// on a disk that it has filled.
//
// # Reading only
//
// With mode=ro in the URL ([OpenReader]) a file is listed and inspected, also
// while another process owns it. It is neither created, locked nor changed.
//
// # What is in the file
//
// Anybody may read it at any time, with the sqlite3 shell for example:
//
//	sqlite3 -readonly -box fleet.db 'SELECT * FROM permits'
//
// The views semaphores, permits, waiters and sessions are for people. The tables
// under them are the state as in fleet/protocol. Nobody but the owner may write:
// it knows what it has written, and does not look again. A reader who keeps a
// transaction open for long keeps the write-ahead log from being reused, which
// grows meanwhile. A semaphore stays until it is deleted, and then leaves a row
// in table tombstone: where its fences have come to.
//
// Beside the file there are fleet.db-wal and fleet.db-shm, which are part of it
// and are gone after a proper end, and fleet.db-owner, which is locked by the
// owner and can be left where it is. The file has to be on a local file system, and
// has one name: one with several hard links is rejected, and on Linux one that
// another process has open under another path.
// Do not move or remove it under its owner, and copy it with the shell's .backup.
// A copy is how things were: before one is used again, wait for a TTL.
package sqlitestore
