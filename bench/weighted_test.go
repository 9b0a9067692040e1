package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
	"golang.org/x/sync/semaphore"
)

// weighted is implemented by both semaphores.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

// TestWeighted_BehavesLikeXSync makes the same random calls, invalid ones
// included, on both semaphores and compares everything a caller can observe.
func TestWeighted_BehavesLikeXSync(t *testing.T) {
	for seed := range uint64(3000) {
		size := int64(seed % 6)
		theirs := history(t, seed, semaphore.NewWeighted(size))
		ours := history(t, seed, sema.NewWeighted(size))
		for i := range theirs {
			if ours[i] != theirs[i] {
				t.Fatalf("seed %d, size %d, step %d:\nsema   %s\nx/sync %s", seed, size, i, ours[i], theirs[i])
			}
		}
	}
}

// history returns the observable state after each of some random calls.
func history(t *testing.T, seed uint64, w weighted) (seen []string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var waits []*pendingAcquire
		var tried int64 // acquired by TryAcquire, minus what was released
		defer func() {
			for _, w := range waits {
				w.cancel()
			}
		}()
		for range 40 {
			n := rng.Int64N(8) - 1
			var did string
			switch rng.IntN(6) {
			case 0, 1:
				if n == 0 {
					n = 1 // see the doc comment of sema.Weighted
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rng.IntN(8) == 0 {
					cancel()
				}
				c := &pendingAcquire{n, cancel, "waits"}
				waits = append(waits, c)
				go func() {
					c.state = resultOf(func() string { return fmt.Sprint(w.Acquire(ctx, n)) })
				}()
				did = "acquire"
			case 2:
				did = "try " + resultOf(func() string {
					ok := w.TryAcquire(n)
					if ok {
						tried += n
					}
					return fmt.Sprint(ok)
				})
			case 3, 4:
				// Mostly release no more than is held, so that a history does not
				// end at once.
				if held := heldBy(waits, tried); n > held && rng.IntN(20) > 0 {
					n = held
				}
				did = "release " + resultOf(func() string { w.Release(n); return "ok" })
				tried -= max(0, n)
			case 5:
				if len(waits) > 0 {
					waits[rng.IntN(len(waits))].cancel()
				}
				did = "cancel"
			}
			synctest.Wait()
			step := fmt.Sprintf("%s %d:", did, n)
			for _, c := range waits {
				step += " " + c.state
			}
			seen = append(seen, step)
			if strings.Contains(did, "more than held") {
				return // after such a panic, more permits are free than exist
			}
		}
	})
	return seen
}

// A pendingAcquire is an acquire that may not have ended.
type pendingAcquire struct {
	n      int64
	cancel context.CancelFunc
	state  string
}

// heldBy returns the weight that is acquired and not released.
func heldBy(waits []*pendingAcquire, tried int64) int64 {
	for _, c := range waits {
		if c.state == "<nil>" {
			tried += c.n
		}
	}
	return tried
}

// resultOf returns the result of f, or the value it panicked with.
func resultOf(f func() string) (result string) {
	defer func() {
		if r := recover(); r != nil {
			result = fmt.Sprint("panic: ", r)
		}
	}()
	return f()
}
