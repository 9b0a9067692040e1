// Package fleet bounds concurrency across machines. Its permits have the options, verbs
// and guarantees of package sema, and are shared through a store that all machines reach.
//
//	client, err := fleet.Open(ctx, "sqlite:///var/lib/app/sema.db")
//	…
//	db, err := client.Semaphore("db", 40, sema.MaxWait(5*time.Second))
//	…
//	permit, err := db.Acquire(ctx, 1)
//	…
//	defer permit.Release()
//
// A permit is backed by a lease. It is valid as long as this process renews its session
// at the store. A process that crashes, or cannot reach the store, loses its permits
// after a TTL: [sema.Permit.Lost] is closed, and [sema.Permit.Err] returns an error as
// soon as the time has passed. A write that is already in flight cannot be stopped, so
// it is fenced: see [LeaseOf].
//
// Use package host for the processes of one machine: it needs no store and detects a
// crash immediately.
//
// docs/protocol.md describes the protocol.
package fleet
