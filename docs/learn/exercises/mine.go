//go:build mine

package exercises

import (
	"context"
	"errors"

	"github.com/sema-go/sema"
)

// NewCounting returns a counting semaphore that is made without package sema: exercise 1.
func NewCounting(n int) Counting { panic(unsolved("exercise 1")) }

// NewPool returns a pool of connections around a sema.Semaphore: exercise 2.
func NewPool(size int64, open func() (*Conn, error)) Pool { panic(unsolved("exercise 2")) }

// Meet returns two functions, for two goroutines: exercise 3. Neither returns before the other
// one was called. Use two sema.Counters.
func Meet() (left, right func(ctx context.Context) error) { panic(unsolved("exercise 3")) }

// NewLimiter returns a limiter of a semaphore and a timer: exercise 4. perSecond calls pass
// each second, and up to burst after a pause.
func NewLimiter(perSecond, burst int64) Limiter { panic(unsolved("exercise 4")) }

// First runs fn with a permit of the semaphore that has one first, and leaves no request
// behind: exercise 5.
func First(ctx context.Context, a, b *sema.Semaphore, fn func(which *sema.Semaphore)) error {
	return errors.New("exercise 5 is not solved yet")
}

// Transfer runs fn while it holds a permit of both gates: exercise 6. Two transfers in opposite
// directions must not wait for each other for ever.
func Transfer(ctx context.Context, from, to sema.Gate, fn func()) error {
	return errors.New("exercise 6 is not solved yet")
}

// NewBuffer returns a buffer for so many items, made without a channel of items: exercise 7.
// Use two sema.Counters.
func NewBuffer(capacity int64) Buffer { panic(unsolved("exercise 7")) }

// RunAll runs jobs, up to n at the same time: exercise 8. After an error it starts no more of
// them and ends the context of those that run. It returns that error, when all have returned.
func RunAll(ctx context.Context, n int64, jobs ...func(context.Context) error) error {
	return errors.New("exercise 8 is not solved yet")
}
