//go:build mine

package exercises

import (
	"context"

	"github.com/sema-go/sema"
)

// NewCounting returns a counting semaphore that is made without package sema: exercise 1.
func NewCounting(n int) Counting { panic("exercise 1") }

// NewPool returns a pool of connections around a sema.Semaphore: exercise 2.
func NewPool(size int64, open func() (*Conn, error)) Pool { panic("exercise 2") }

// Meet returns two functions, for two goroutines: exercise 3. Neither returns before the other
// one was called. Use two sema.Counters.
func Meet() (left, right func(ctx context.Context) error) { panic("exercise 3") }

// NewLimiter returns a limiter of a semaphore and a timer: exercise 4. perSecond calls pass
// each second, and up to burst after a pause.
func NewLimiter(perSecond, burst int64) Limiter { panic("exercise 4") }

// First runs fn with a permit of the semaphore that has one first, and leaves no request
// behind: exercise 5.
func First(ctx context.Context, a, b *sema.Semaphore, fn func(which *sema.Semaphore)) error {
	panic("exercise 5")
}

// Transfer runs fn while it holds a permit of both gates: exercise 6. Two transfers in opposite
// directions must not wait for each other for ever.
func Transfer(ctx context.Context, from, to sema.Gate, fn func()) error { panic("exercise 6") }
