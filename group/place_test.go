package group_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/rate"
)

// The tests of this file check that a group waits at its gate only for permits that one of
// its functions needs. Other users of the gate are in the same queue.

func sleeps(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}

func wantWaiters(t *testing.T, gate interface{ Stats() sema.Stats }, want int) {
	t.Helper()
	synctest.Wait()
	if st := gate.Stats(); st.Waiters != want {
		t.Errorf("%d callers wait at the gate, want %d", st.Waiters, want)
	}
}

func wantDone(t *testing.T, g *group.Group) {
	t.Helper()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestGroup_CallerThatGivesUpLeavesTheGate(t *testing.T) {
	t.Parallel()
	t.Run("no other function waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			gate := sema.New(10)
			held, _ := gate.Acquire(t.Context(), 5)
			defer held.Release()
			g := group.New(t.Context(), gate)
			giveUp(t, g, 10)
			wantWaiters(t, gate, 0)
			p, err := gate.TryAcquire(t.Context(), 5)
			if err != nil {
				t.Errorf("another user of the gate: %v", err)
			}
			p.Release()
			wantDone(t, g)
		})
	})
	t.Run("a function with fewer permits is behind it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			gate := sema.New(10)
			held, _ := gate.Acquire(t.Context(), 5)
			defer held.Release()
			g := group.New(t.Context(), gate)
			behind := make(chan struct{})
			go func() {
				time.Sleep(time.Millisecond)
				g.GoN(1, func(context.Context) error { close(behind); return nil })
			}()
			giveUp(t, g, 10)
			<-behind // deadlock if it waits for held
			wantDone(t, g)
		})
	})
	t.Run("a function with as many permits keeps the place", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			gate := sema.New(1)
			held, _ := gate.Acquire(t.Context(), 1)
			g := group.New(t.Context(), gate)
			go giveUp(t, g, 1)
			synctest.Wait()
			var order []string
			ran := func(name string) func(context.Context) error {
				return func(context.Context) error { order = append(order, name); return nil }
			}
			go g.GoN(1, ran("group"))
			synctest.Wait()
			other := make(chan struct{})
			go func() {
				_ = sema.Do(t.Context(), gate, 1, ran("other"))
				close(other)
			}()
			time.Sleep(2 * time.Second)
			held.Release()
			<-other
			wantDone(t, g)
			if len(order) != 2 || order[0] != "group" {
				t.Errorf("order %v, want the group first", order)
			}
		})
	})
	t.Run("a rate grants it nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			gate := rate.New(1, 10*time.Second, rate.Burst(1))
			if _, err := gate.TryAcquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			g := group.New(t.Context(), gate)
			giveUp(t, g, 1)
			time.Sleep(10 * time.Second)
			if _, err := gate.TryAcquire(t.Context(), 1); err != nil {
				t.Errorf("the permit of a caller that gave up is spent: %v", err)
			}
			wantDone(t, g)
		})
	})
}

// giveUp waits for n permits for a second, in vain.
func giveUp(t *testing.T, g *group.Group, n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := g.GoWithin(ctx, n, sleeps(0)); err == nil {
		t.Error("GoWithin returned no error")
	}
}

// TestGroup_FunctionUnderAKeptPermitLeavesTheGate: it has the permit of the function before it.
func TestGroup_FunctionUnderAKeptPermitLeavesTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(10)
		held, _ := gate.Acquire(t.Context(), 4)
		defer held.Release()
		g := group.New(t.Context(), gate)
		g.GoN(5, sleeps(time.Second))
		g.GoN(5, sleeps(time.Hour)) // returns when it runs, after a second
		wantWaiters(t, gate, 0)
		wantDone(t, g)
	})
}

// TestGroup_MaxWaitStartsAnewForEachFunction: the wait of one function is not part of that of the
// next one.
func TestGroup_MaxWaitStartsAnewForEachFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := group.New(t.Context(), sema.New(1, sema.MaxWait(time.Second)))
		for range 5 {
			g.Go(sleeps(900 * time.Millisecond))
		}
		go g.Go(sleeps(900 * time.Millisecond)) // at 3.6s, when the fifth starts; runs at 4.5s
		time.Sleep(500 * time.Millisecond)
		g.Go(sleeps(900 * time.Millisecond)) // at 4.1s; runs at 5.4s
		wantDone(t, g)
	})
}
