// Package fleet bounds concurrency among machines: the same permits, with the
// same verbs and guarantees, shared through an engine that all of them reach.
//
//	client, err := fleet.Open(ctx, "sqlite:///var/lib/app/sema.db")
//	…
//	db, err := client.Semaphore("db", fleet.Options{Capacity: 40})
//	…
//	permit, err := db.Acquire(ctx, 1)
//	…
//	defer permit.Release()
//
// A permit is backed by a lease: it lives as long as this process renews its
// session at the engine. A process that dies, or cannot reach the engine, loses
// its permits after a TTL, and is told: [sema.Permit.Lost] is closed,
// [sema.Permit.Err] says so by the clock. What cannot be stopped, a write that is
// already on its way, is fenced: see [LeaseOf].
//
// Use package host for processes of one machine: it needs no engine and knows of
// a crash at once.
//
// docs/protocol.md says how it works.
package fleet
