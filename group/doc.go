// Package group runs functions in goroutines, as many at a time as a [sema.Gate] admits,
// and collects their errors.
//
//	g := group.New(ctx, sema.New(8))
//	for _, url := range urls {
//		g.Go(func(ctx context.Context) error { return fetch(ctx, url) })
//	}
//	err := g.Wait()
//
// The gate is any one: a semaphore that other parts of the program share, a class of a fair
// queue, a rate, a fleet semaphore. Functions may have weights: [Group.GoN] with a gate of
// bytes bounds memory. [Each], [Map] and [Stream] do the common loops in one call, and
// [Keyed] bounds functions of the same kind.
//
// What it promises that golang.org/x/sync/errgroup does not: no function starts after
// another one has failed; Wait returns that error, and not "context canceled" of those that
// it has cancelled; a panic surfaces at Wait, with the stack of the function; a caller that
// waits for the gate stops waiting when the group fails.
//
// For functions that need no bound and cannot fail, use a [sync.WaitGroup].
package group
