//go:build linux

package host_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func TestAcquire_DoesNotAllocate(t *testing.T) {
	if raceFactor > 1 {
		t.Skip("sync.Pool drops items under the race detector")
	}
	sem, _, _ := open(t, 2)
	ctx := context.Background()
	held := mustAcquire(t, sem, 1) // two permits of one process at a time
	defer held.Release()
	if n := testing.AllocsPerRun(1000, func() {
		p, err := sem.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		if p, err = sem.TryAcquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		p.Release()
	}); n > 0.5 {
		t.Errorf("%v allocations in two pairs, want none", n)
	}
}

// TestPermit_OfAnEarlierAcquireIsNotHeld checks that a copy of a released permit does
// nothing to the permit that reuses its state.
func TestPermit_OfAnEarlierAcquireIsNotHeld(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 2)
	for range 20 {
		old := mustAcquire(t, sem, 1)
		old.Release()
		now := mustAcquire(t, sem, 1)
		old.Release()
		if _, _, err := old.Split(1); err == nil || old.Held() || old.Slots() != nil || !now.Held() || len(now.Slots()) != 1 {
			t.Fatalf("old: split %v, held %v, slots %v; now: held %v, slots %v", err, old.Held(), old.Slots(), now.Held(), now.Slots())
		}
		wantErr(t, host.Inherit(old, exec.Command("true")), sema.ErrInvalid)
		awaitStats(t, sem, 1, 0)
		now.Release()
		awaitStats(t, sem, 0, 0)
	}
}

// TestRelease_HandsOverTheSlotsOfAReusedPermit checks that a waiter of the same process
// keeps the slots that it was given while the released permit's state is reused.
func TestRelease_HandsOverTheSlotsOfAReusedPermit(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 2)
	for range 20 {
		a, b := mustAcquire(t, sem, 1), mustAcquire(t, sem, 1)
		waiter := acquiring(t, sem, 1)
		awaitStats(t, sem, 2, 1)
		a.Release() // hands over
		c := <-waiter
		b.Release()
		d := mustAcquire(t, sem, 1)
		if x, y := c.Slots(), d.Slots(); len(x) != 1 || len(y) != 1 || x[0] == y[0] {
			t.Fatalf("slots %v and %v are held", x, y)
		}
		awaitStats(t, sem, 2, 0)
		c.Release()
		d.Release()
		awaitStats(t, sem, 0, 0)
	}
}
