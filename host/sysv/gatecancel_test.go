//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

func TestGate_CancelEndsQueuedAndKernelWaits(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 1)
	held := acquire(t, gate, 1)
	reason := errors.New("the cause")
	var cancels []context.CancelCauseFunc
	var ends []<-chan error
	for i := range 4 {
		ctx, cancel := context.WithCancelCause(background)
		cancels = append(cancels, cancel)
		ends = append(ends, start(func() error {
			_, err := gate.Acquire(ctx, 1)
			return err
		}))
		eventually(t, "one more waits", func() bool { return waiters(t, gate) == i+1 })
	}
	for _, i := range []int{2, 0, 3, 1} {
		cancels[i](reason)
		mustBe(t, await(t, ends[i]), reason)
	}
	held.Release()
	acquire(t, gate, 1).Release()
	expectValues(t, set, 1)
}

func TestGate_RemovedSetClosesTheGate(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 2)
	held := acquire(t, gate, 2)
	must(t, held.Err())
	var ends []<-chan error
	for i := range 3 {
		ends = append(ends, start(func() error {
			_, err := gate.Acquire(background, 1)
			return err
		}))
		eventually(t, "one more waits", func() bool { return waiters(t, gate) == i+1 })
	}
	must(t, set.Remove())
	for _, ended := range ends {
		mustBe(t, await(t, ended), sema.ErrClosed)
	}
	for _, n := range []int64{0, 1} {
		_, err := gate.Acquire(background, n)
		mustBe(t, err, sema.ErrClosed)
		_, err = gate.TryAcquire(background, n)
		mustBe(t, err, sema.ErrClosed)
	}
	mustBe(t, held.Err(), sema.ErrLost)
	held.Release()
}

// TestGate_CancelStormsConservePermits is like TestSet_CancelStormsConserveTheValue, for
// a gate, with splits and a count of the held permits.
func TestGate_CancelStormsConservePermits(t *testing.T) {
	t.Parallel()
	const capacity, workers, rounds = 4, 8, 120
	gate, set := newGate(t, capacity)
	var held atomic.Int64
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(400))*time.Microsecond)
				n := int64(rand.IntN(capacity) + 1)
				permit, err := gate.Acquire(ctx, n)
				cancel()
				if err != nil {
					mustBe(t, err, context.DeadlineExceeded)
					continue
				}
				if now := held.Add(n); now > capacity {
					t.Errorf("%d held of %d", now, capacity)
				}
				time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
				held.Add(-n)
				if first, rest, err := permit.Split(1); err == nil {
					first.Release()
					permit = rest
				}
				permit.Release()
				permit.Release()
			}
		})
	}
	working.Wait()
	expectValues(t, set, capacity)
	if all, err := gate.TryAcquire(background, capacity); err != nil {
		t.Error(err)
	} else {
		all.Release()
	}
}

func TestGate_CloseRejectsWaitersAndKeepsHeldPermits(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 1)
	held := acquire(t, gate, 1)
	var ends []<-chan error
	for i := range 2 { // in the kernel, and in this process
		ends = append(ends, start(func() error {
			_, err := gate.Acquire(background, 1)
			return err
		}))
		eventually(t, "one more waits", func() bool { return waiters(t, gate) == i+1 })
	}
	must(t, gate.Close())
	for _, ended := range ends {
		mustBe(t, await(t, ended), sema.ErrClosed)
	}
	for _, n := range []int64{0, 1} {
		_, err := gate.TryAcquire(background, n)
		mustBe(t, err, sema.ErrClosed)
	}
	expectValues(t, set, 0)
	held.Release()
	expectValues(t, set, 1)
}
