// Package tune finds the capacity of a semaphore by measuring what it guards.
//
// A capacity that was guessed is either too low, and wastes the dependency, or too high:
// then callers queue inside the dependency, where nothing bounds or observes them, and
// each of them takes longer. [Run] calls the dependency with 1, 2, 4, … calls at a time
// until its throughput stops rising. It then finds the least capacity that yields almost
// all of the throughput, and proposes that with some headroom:
//
//	r, err := tune.Run(ctx, tune.Config{Work: func(ctx context.Context) error {
//		return db.QueryRowContext(ctx, query).Scan(&n)
//	}})
//	fmt.Println(r.Proposed, r.Why)
//
// Run it against a dependency that serves nothing else meanwhile, with calls that are
// typical. The command "sema tune" does the same with a command. For a limit that follows
// a dependency while it is in use, use the adaptive limits of package admit.
package tune
