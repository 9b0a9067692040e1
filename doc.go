// Package sema bounds concurrency in a process: how many goroutines use a
// database, how much memory a batch takes, how many requests are in flight.
//
// A [Semaphore] hands out a [Permit] for a weight and takes it back:
//
//	db := sema.New(40, sema.Name("db"))
//	permit, err := db.Acquire(ctx, 1)
//	if err != nil {
//		return err
//	}
//	defer permit.Release()
//
// The same verbs, errors and guarantees hold at every scope of Sema; code
// written against [Gate] moves from a process to a host to a fleet by a change
// of constructor.
//
// # Guarantees
//
//  1. Permits are conserved: free + held == capacity, plus debt after a shrink.
//     Nothing creates or loses one: not a cancel that races a grant, nor a
//     panic, a double release, a copy of a permit, a close or a resize.
//  2. Fair, the default, means strict order of arrival among waiters,
//     weights included. A waiter that gives up never holds up those behind.
//  3. A caller whose context ends gets its cause, and a done context never
//     acquires.
//  4. To ask for more than can ever be granted is an error at once
//     ([ErrTooLarge]), also after a shrink. Capacity 0 means paused: all wait.
//  5. Shrinking revokes nothing; releases pay the debt before the queue is
//     served again.
//  6. Weight 0 is granted at once, as an inert permit, unless closed or
//     draining. A negative weight is an error and changes nothing.
//  7. Over-release is impossible through a Permit, and rejected by a [Counter].
//  8. Waiting can be observed: how many, how long, why it ended, at which call
//     site ([Observe], [Diagnose]).
//
// [Weighted], which is golang.org/x/sync/semaphore to the letter, is exempt
// from 3, 4, 6 and 7.
//
// # Which one
//
//   - [Semaphore] unless you know better. [Unfair] if throughput matters more
//     than order, [LIFO] if under overload some should be served quickly.
//   - [Weighted] to replace x/sync without touching the code that uses it.
//   - [Counter] to signal: any goroutine may post what another waits for.
//   - [Striped] for permits of weight 1, hot on many cores and seldom full.
//   - [Spin] inside data structures, for sections of some nanoseconds.
//
// A mutex needs no semaphore; a rate (so many per second) needs a limiter.
//
// # When a permit leaked
//
// Set SEMA_DEBUG=sampled or full, or give [Diagnose] to one semaphore. The
// runtime/pprof profiles sema.held, sema.waiting and sema.contention then name
// call sites (net/http/pprof serves them with all others), [Holders] and
// [Contention] list them, and leaks, overlong holds, inverted acquire orders
// and suspected deadlocks are reported with stacks to the observers, or to
// slog.Default if there are none.
package sema
