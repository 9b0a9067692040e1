package group_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/sematest"
)

// ahead is how many calls of Go return before a permit is free.
const ahead = 256

// A shortGroup is a group of one permit that has found its functions to be short. One
// function holds the permit.
type shortGroup struct {
	*group.Group
	gate    *sema.Semaphore
	release func() // ends the function that holds the permit
}

// newShortGroup must run in a synctest bubble.
func newShortGroup(t *testing.T, took time.Duration, opts ...group.Option) shortGroup {
	gate := sema.New(1)
	sematest.NoneHeld(t, gate)
	g := group.New(ctx, gate, opts...)
	hold := func() (release func()) {
		held := make(chan struct{})
		g.Go(func(context.Context) error { <-held; return nil })
		return func() { close(held) }
	}
	release := hold()
	for range 3 { // queued, so that one goroutine runs all of them and measures
		go g.Go(func(context.Context) error { time.Sleep(took); return nil })
	}
	synctest.Wait()
	release()
	time.Sleep(time.Second)
	return shortGroup{g, gate, hold()}
}

func TestGroup_ShortFunctionsAreAcceptedInAdvance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took     time.Duration
		accepted int64
	}{
		{time.Microsecond, ahead},
		{50 * time.Microsecond, ahead},
		{51 * time.Microsecond, 0},
		{time.Millisecond, 0},
	} {
		t.Run(c.took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newShortGroup(t, c.took)
				var returned, order atomic.Int64
				go func() {
					for i := range int64(3 * ahead) {
						g.Go(func(context.Context) error {
							if !order.CompareAndSwap(i, i+1) {
								t.Errorf("function %d ran after %d", i, order.Load())
							}
							return nil
						})
						returned.Add(1)
					}
				}()
				synctest.Wait()
				if n := returned.Load(); n != c.accepted {
					t.Errorf("%d calls returned, not %d", n, c.accepted)
				}
				g.release()
				synctest.Wait()
				if err := g.Wait(); err != nil || order.Load() != 3*ahead {
					t.Errorf("%v: %d of %d functions ran", err, order.Load(), 3*ahead)
				}
			})
		})
	}
}

// TestGroup_LongFunctionsEndAcceptance checks that a group notices that its functions
// became long.
func TestGroup_LongFunctionsEndAcceptance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newShortGroup(t, 0)
		for range 3 {
			g.Go(func(context.Context) error { time.Sleep(time.Millisecond); return nil })
		}
		g.release()
		time.Sleep(time.Second)
		var returned atomic.Int64
		go func() {
			for range 3 {
				g.Go(func(context.Context) error { time.Sleep(time.Millisecond); return nil })
				returned.Add(1)
			}
		}()
		synctest.Wait()
		if n := returned.Load(); n != 1 {
			t.Errorf("%d calls returned, not 1", n)
		}
		time.Sleep(time.Second)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestGroup_WeightsAreNeverAccepted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newShortGroup(t, 0)
		var returned atomic.Int64
		ran := 0
		for _, start := range []func(){
			func() { g.GoN(1, func(context.Context) error { ran++; return nil }) },
			func() {
				if err := g.GoWithin(ctx, 1, func(context.Context) error { ran++; return nil }); err != nil {
					t.Error(err)
				}
			},
		} {
			go func() { start(); returned.Add(1) }()
		}
		synctest.Wait()
		if n := returned.Load(); n != 0 {
			t.Errorf("%d calls returned", n)
		}
		g.release()
		synctest.Wait()
		if err := g.Wait(); err != nil || ran != 2 {
			t.Errorf("%v: %d ran", err, ran)
		}
	})
}

func TestGroup_AcceptedFunctionsOfAnEndedGroup(t *testing.T) {
	t.Parallel()
	late := func(t *testing.T) func(context.Context) error {
		return func(context.Context) error { t.Error("started"); return nil }
	}
	t.Run("after a failure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newShortGroup(t, 0)
			g.Go(func(context.Context) error { return errA })
			g.Go(late(t))
			g.Go(late(t))
			g.release()
			if err := g.Wait(); err != errA {
				t.Error(err)
			}
		})
	})
	t.Run("after the gate was closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newShortGroup(t, 0)
			g.Go(late(t))
			g.Go(late(t))
			g.gate.Close()
			synctest.Wait()
			g.release()
			if err := g.Wait(); !errors.Is(err, sema.ErrClosed) {
				t.Error(err)
			}
		})
	})
	t.Run("with all errors", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newShortGroup(t, 0, group.AllErrors)
			g.Go(func(context.Context) error { return errA })
			g.Go(func(context.Context) error { return errB })
			g.release()
			if err := g.Wait(); !errors.Is(err, errA) || !errors.Is(err, errB) {
				t.Error(err)
			}
		})
	})
}

// TestGroup_AcceptedFunctionsWhoseContextEnds checks that Wait reports functions that were
// accepted and did not run.
func TestGroup_AcceptedFunctionsWhoseContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancelCause(ctx)
		gate := sema.New(1)
		sematest.NoneHeld(t, gate)
		g := group.New(parent, gate)
		held := make(chan struct{})
		g.Go(func(context.Context) error { <-held; return nil })
		for range 3 {
			go g.Go(func(context.Context) error { return nil })
		}
		synctest.Wait()
		close(held)
		synctest.Wait()
		held = make(chan struct{})
		g.Go(func(context.Context) error { <-held; return nil })
		returned := 0
		blocked := make(chan struct{})
		go func() {
			defer close(blocked)
			for range ahead + 1 {
				g.Go(func(context.Context) error { t.Error("started"); return nil })
				returned++
			}
		}()
		synctest.Wait()
		if returned != ahead {
			t.Fatalf("%d calls returned, not %d", returned, ahead)
		}
		cancel(errCause)
		<-blocked
		close(held)
		if err := g.Wait(); err != errCause {
			t.Error(err)
		}
	})
}

// TestGroup_AcceptedFunctionsRunAtOnce checks that an accepted function needs only a permit,
// not the end of another function that is not short after all.
func TestGroup_AcceptedFunctionsRunAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newShortGroup(t, 0)
		met := make(chan struct{})
		g.Go(func(context.Context) error { <-met; return nil })
		g.Go(func(context.Context) error { met <- struct{}{}; return nil })
		g.gate.Resize(3)
		synctest.Wait()
		select {
		case _, open := <-met:
			t.Error("the functions have not met", open)
		default:
		}
		g.release()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestGroup_SharesTheGate checks that short functions leave permits to others that wait at
// the gate.
func TestGroup_SharesTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newShortGroup(t, 0)
		var granted time.Duration
		done := make(chan struct{})
		start := time.Now()
		for range ahead {
			g.Go(func(context.Context) error { time.Sleep(9 * time.Microsecond); return nil })
		}
		go func() {
			defer close(done)
			p, err := g.gate.Acquire(ctx, 1)
			granted = time.Since(start)
			if err != nil {
				t.Error(err)
			}
			p.Release()
		}()
		synctest.Wait()
		g.release()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		<-done
		// The delegate of the group is before it in the queue of the gate, so two turns of
		// 100 µs and the function that is running at the end of each.
		if granted > 250*time.Microsecond {
			t.Errorf("granted after %v", granted)
		}
	})
}

// TestGroup_ManyCallersOfShortFunctions checks that no function is lost or run twice, and
// that no call hangs, when callers are accepted and contexts end at any moment.
func TestGroup_ManyCallersOfShortFunctions(t *testing.T) {
	t.Parallel()
	const callers, calls = 16, 400
	for round := range 60 {
		gate := sema.New(2)
		parent, cancel := context.WithCancelCause(ctx)
		g := group.New(parent, gate)
		var ran atomic.Int64
		var calling sync.WaitGroup
		for caller := range callers {
			calling.Go(func() {
				for i := range calls {
					g.Go(func(context.Context) error { ran.Add(1); return nil })
					if round%2 == 1 && caller == 0 && i == 5*round {
						cancel(errCause)
					}
				}
			})
		}
		calling.Wait()
		err := g.Wait()
		switch ended := round%2 == 1; {
		case !ended && (err != nil || ran.Load() != callers*calls):
			t.Fatalf("%v: %d of %d functions ran", err, ran.Load(), callers*calls)
		case ended && ran.Load() < callers*calls && err != errCause:
			t.Fatalf("%v: %d of %d functions ran", err, ran.Load(), callers*calls)
		}
		if s := gate.Stats(); s.Free != 2 || s.Waiters != 0 {
			t.Fatalf("%v", s)
		}
		cancel(nil)
	}
}
