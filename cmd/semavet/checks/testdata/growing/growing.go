// Package growing releases what it never acquires.
package growing

import "golang.org/x/sync/semaphore"

func grow() {
	sem := semaphore.NewWeighted(10)
	sem.Release(1) // want `sem.Release\(1\) releases what nothing acquires: the capacity grows, or it panics; acquire first`
}

func finish(sem *semaphore.Weighted) { sem.Release(1) }
