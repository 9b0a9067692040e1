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

// weighted is what both have.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

// TestWeightedIsXSyncToTheLetter plays the same random calls, nonsense
// included, on both, and compares everything a caller can see.
func TestWeightedIsXSyncToTheLetter(t *testing.T) {
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

// history is what was seen after each of some random calls.
func history(t *testing.T, seed uint64, w weighted) (seen []string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var waits []*waiting
		var tried int64 // had by tries, less what was released
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
				c := &waiting{n, cancel, "waits"}
				waits = append(waits, c)
				go func() {
					c.state = saying(func() string { return fmt.Sprint(w.Acquire(ctx, n)) })
				}()
				did = "acquire"
			case 2:
				did = "try " + saying(func() string {
					ok := w.TryAcquire(n)
					if ok {
						tried += n
					}
					return fmt.Sprint(ok)
				})
			case 3, 4:
				// Mostly what is out, so that a history does not end at once.
				if held := out(waits, tried); n > held && rng.IntN(20) > 0 {
					n = held
				}
				did = "release " + saying(func() string { w.Release(n); return "ok" })
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
				return // who recovers from that has permits out of thin air
			}
		}
	})
	return seen
}

// A waiting is an acquire that may not have ended.
type waiting struct {
	n      int64
	cancel context.CancelFunc
	state  string
}

// out is how much is acquired and not released.
func out(waits []*waiting, tried int64) int64 {
	for _, c := range waits {
		if c.state == "<nil>" {
			tried += c.n
		}
	}
	return tried
}

// saying is what f returns, or what it panics with.
func saying(f func() string) (said string) {
	defer func() {
		if r := recover(); r != nil {
			said = fmt.Sprint("panic: ", r)
		}
	}()
	return f()
}
