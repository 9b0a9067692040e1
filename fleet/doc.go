// Package fleet bounds concurrency among machines: the same permits, with the
// same options, verbs and guarantees, shared through a store that all of them reach.
//
//	client, err := fleet.Open(ctx, "sqlite:///var/lib/app/sema.db")
//	…
//	db, err := client.Semaphore("db", 40, sema.MaxWait(5*time.Second))
//	…
//	permit, err := db.Acquire(ctx, 1)
//	…
//	defer permit.Release()
//
// A permit is backed by a lease: it lives as long as this process renews its
// session at the store. A process that crashes, or cannot reach the store, loses
// its permits after a TTL: [sema.Permit.Lost] is closed, and [sema.Permit.Err]
// decides by the clock. A write that is already on its way cannot be stopped, and
// is fenced: see [LeaseOf].
//
// Use package host for processes of one machine: it needs no store and notices a
// crash at once.
//
// docs/protocol.md describes the protocol.
package fleet
