//go:build mine

package exercises

import (
	"context"

	"github.com/sema-go/sema"
)

// NewCounting is exercise 1: a counting semaphore, without package sema.
func NewCounting(n int) Counting { panic("exercise 1") }

// NewPool is exercise 2: a pool of connections around a sema.Semaphore.
func NewPool(size int64, open func() (*Conn, error)) Pool { panic("exercise 2") }

// Meet is exercise 3: it returns two functions, for two goroutines. Neither returns before the
// other one was called. Use two sema.Counters.
func Meet() (left, right func(ctx context.Context) error) { panic("exercise 3") }

// NewLimiter is exercise 4: a semaphore and a timer, so that perSecond calls pass each second,
// and up to burst after a pause.
func NewLimiter(perSecond, burst int64) Limiter { panic("exercise 4") }

// First is exercise 5: it runs fn with a permit of the semaphore that has one first, and leaves
// no request behind.
func First(ctx context.Context, a, b *sema.Semaphore, fn func(which *sema.Semaphore)) error {
	panic("exercise 5")
}

// Transfer is exercise 6: it runs fn while it holds a permit of both gates. Two transfers in
// opposite directions must not wait for each other for ever.
func Transfer(ctx context.Context, from, to sema.Gate, fn func()) error { panic("exercise 6") }
