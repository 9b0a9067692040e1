// Package exercises contains the exercises of the course (docs/learn/exercises.md). Their tests
// run against the solutions, and with the build tag mine against what you have written:
//
//	go test ./docs/learn/exercises               # the solutions
//	go test -tags mine ./docs/learn/exercises    # mine.go
package exercises

import "context"

// A Counting is a semaphore with permits of weight 1.
type Counting interface {
	// Acquire takes a permit, or returns the cause of a context that ended. A context that
	// ended before acquires nothing.
	Acquire(ctx context.Context) error
	// TryAcquire takes a permit if one is free.
	TryAcquire() bool
	// Release returns a permit, and panics if none is held.
	Release()
}

// A Conn is a connection of exercise 2.
type Conn struct {
	ID     int
	Broken bool
}

// A Pool lends connections.
type Pool interface {
	// Get lends the connection that was returned last, or opens one. It waits while as many
	// are lent as the pool may have.
	Get(ctx context.Context) (*Conn, error)
	// Put returns a connection. A broken one is not lent again.
	Put(c *Conn)
}

// A Limiter lets a number of calls pass each second.
type Limiter interface {
	// Wait waits until the call may pass, or until the context ends.
	Wait(ctx context.Context) error
	// Close ends what runs in the background.
	Close()
}

// A Buffer passes items from producers to consumers, in order.
type Buffer interface {
	// Put adds an item. It waits while the buffer is full, or until the context ends.
	Put(ctx context.Context, item int) error
	// Take removes the oldest item. It waits while there is none, or until the context ends.
	Take(ctx context.Context) (int, error)
}

// An unsolved is the panic of a function of mine.go that was not written yet: the test of its
// exercise fails, and those of the others run.
type unsolved string
