// Package sema bounds concurrency in a process: how many goroutines use a
// database, how much memory a batch takes, how many requests are in flight.
//
// A [Semaphore] grants a [Permit], and Release returns it. The weight of a permit is
// the number of units that it takes, here 1:
//
//	db := sema.New(40, sema.Name("db"))
//	permit, err := db.Acquire(ctx, 1)
//	if err != nil {
//		return err
//	}
//	defer permit.Release()
//
// The same methods, errors and guarantees hold at every scope of Sema. Code
// written against [Gate] moves from a process to a host to a fleet by a change
// of constructor.
//
// # Guarantees
//
//  1. Permits are conserved: free + held == capacity, plus debt after a shrink.
//     Nothing creates or loses a permit: not a cancel that races with a grant,
//     nor a panic, a double release, a copy of a permit, a close or a resize.
//  2. Fair, the default order, serves waiters strictly in order of arrival,
//     whatever their weights. A waiter that gives up never delays those behind it.
//  3. A caller whose context ends gets the context's cause. A done context
//     never acquires.
//  4. A request for more than the capacity fails at once with [ErrTooLarge],
//     also after a shrink. Capacity 0 means paused: all requests wait.
//  5. Shrinking revokes nothing. Releases pay the debt before the queue is
//     served again.
//  6. Weight 0 is granted at once, as an inert permit, unless the semaphore is
//     closed or draining. A negative weight is an error and changes nothing.
//  7. Over-release is impossible through a Permit, and rejected by a [Counter].
//  8. Waiting can be observed: how many callers wait, for how long, why a wait
//     ended, and at which call site ([Observe], [Diagnose]).
//
// [Weighted], which replaces golang.org/x/sync/semaphore, is exempt
// from 3, 4, 6 and 7.
//
// # Choosing a type
//
//   - [Semaphore] is the default choice. Use [Unfair] if throughput matters more
//     than order, and [LIFO] to serve some callers quickly under overload.
//   - [Weighted] replaces x/sync without changes to the code that uses it.
//   - [Counter] is for signalling: any goroutine may post what another waits for.
//   - [Striped] is for permits of weight 1 that many cores acquire all the time and
//     that are seldom exhausted.
//   - [Spin] is for critical sections of some dozens of nanoseconds inside data
//     structures.
//
// For mutual exclusion use a sync.Mutex. For a rate (so many per second) use a
// rate limiter.
//
// # Finding leaked permits
//
// Set SEMA_DEBUG=sampled or full, or pass [Diagnose] to one semaphore. The
// runtime/pprof profiles sema.held, sema.waiting and sema.contention then name
// call sites; net/http/pprof serves them with all other profiles. [Holders] and
// [Contention] list the same call sites. Leaks, overlong holds, inverted acquire
// orders and suspected deadlocks are reported with stacks to the observers, or
// to slog.Default if there are none.
package sema
