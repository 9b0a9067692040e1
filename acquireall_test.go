package sema_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func TestAcquireAll_HoldsNothingWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu, memory := sema.New(1, sema.Name("gpu")), sema.New(10, sema.Name("memory"))
		busy := mustAcquire(t, gpu, 1)
		got := make(chan result, 1)
		go func() {
			p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: memory, N: 6}, sema.Want{Gate: gpu, N: 1})
			got <- result{p, err}
		}()
		synctest.Wait()
		wantStats(t, memory, 0, 1)
		wantStats(t, gpu, 1, 1)
		busy.Release()
		synctest.Wait()
		r := <-got
		wantErr(t, r.err, nil)
		if r.permit.Weight() != 7 {
			t.Errorf("weight %d", r.permit.Weight())
		}
		wantStats(t, memory, 6, 0)
		wantStats(t, gpu, 1, 0)
		r.permit.Release()
		r.permit.Release()
		wantStats(t, memory, 0, 0)
		wantStats(t, gpu, 0, 0)
	})
}

// TestAcquireAll_IsNotStarvedOnBackloggedSemaphores covers the load under which
// blocking on one semaphore and trying the others never succeeds.
func TestAcquireAll_IsNotStarvedOnBackloggedSemaphores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(2), sema.New(2)
		ctx, stop := context.WithCancel(t.Context())
		for _, s := range []*sema.Semaphore{a, b} {
			for i := range 6 {
				go func() {
					time.Sleep(time.Duration(i) * 37 * time.Millisecond)
					for ctx.Err() == nil {
						if p, err := s.Acquire(ctx, 1); err == nil {
							time.Sleep(100 * time.Millisecond)
							p.Release()
						}
					}
				}()
			}
		}
		time.Sleep(time.Second)
		for range 20 {
			began := time.Now()
			p, err := sema.AcquireAll(ctx, sema.Want{Gate: a, N: 2}, sema.Want{Gate: b, N: 2})
			wantErr(t, err, nil)
			if waited := time.Since(began); waited > time.Second {
				t.Fatalf("waited %v", waited)
			}
			p.Release()
		}
		stop()
		time.Sleep(time.Second)
	})
}

func TestAcquireAll_InOppositeOrdersDoesNotDeadlock(t *testing.T) {
	a, b, c := sema.New(1), sema.New(1, sema.LIFO), sema.New(1, sema.Unfair)
	sems := []sema.Gate{a, b, c}
	var philosophers sync.WaitGroup
	for i := range 9 {
		philosophers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for range 500 {
				pick := rng.Perm(3)[:2]
				p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: sems[pick[0]], N: 1}, sema.Want{Gate: sems[pick[1]], N: 1})
				if err != nil {
					t.Error(err)
					return
				}
				p.Release()
			}
		})
	}
	philosophers.Wait()
}

func TestAcquireAll_KeepsItsPositionInEveryQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(1), sema.New(1)
		heldA, heldB := mustAcquire(t, a, 1), mustAcquire(t, b, 1)
		joint := make(chan result, 1)
		go func() {
			p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
			joint <- result{p, err}
		}()
		synctest.Wait()
		late := acquiring(t.Context(), a, 1)
		synctest.Wait()
		heldA.Release()
		synctest.Wait()
		if isDone(late) {
			t.Fatal("the joint waiter was overtaken")
		}
		heldB.Release()
		synctest.Wait()
		(<-joint).permit.Release()
		(<-late).permit.Release()
	})
}

func TestAcquireAll_CancelledOrRejectedUnblocksOthers(t *testing.T) {
	for name, end := range map[string]func(cancel func(), b *sema.Semaphore){
		"cancelled": func(cancel func(), _ *sema.Semaphore) { cancel() },
		"closed":    func(_ func(), b *sema.Semaphore) { b.Close() },
		"draining":  func(_ func(), b *sema.Semaphore) { b.Drain(endedContext()) },
		"too large": func(_ func(), b *sema.Semaphore) { b.Resize(1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := sema.New(1), sema.New(2, sema.Name("b"))
			heldB := mustAcquire(t, b, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			joint := make(chan result, 1)
			go func() {
				p, err := sema.AcquireAll(ctx, sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 2})
				joint <- result{p, err}
			}()
			synctest.Wait()
			behind := acquiring(t.Context(), a, 1)
			synctest.Wait()
			if isDone(behind) {
				t.Fatalf("%s: the joint waiter was overtaken", name)
			}
			end(cancel, b)
			synctest.Wait()
			err := (<-joint).err
			if err == nil || name != "cancelled" && !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("%s: %v", name, err)
			}
			if !isDone(behind) {
				t.Fatalf("%s: the waiter behind it was not woken", name)
			}
			(<-behind).permit.Release()
			heldB.Release()
			wantStats(t, a, 0, 0)
			wantStats(t, b, 0, 0)
		})
	}
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestAcquireAll_TimesOutWithTheShortestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(1, sema.MaxWait(time.Hour)), sema.New(1, sema.Name("b"), sema.MaxWait(time.Second))
		held := mustAcquire(t, a, 1)
		began := time.Now()
		_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, sema.ErrTimeout)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
		held.Release()
		wantStats(t, a, 0, 0)
		wantStats(t, b, 0, 0)
	})
}

func TestAcquireAll_MergesDuplicates(t *testing.T) {
	s := sema.New(3)
	other := sema.New(1)
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: 1}, sema.Want{Gate: other, N: 1}, sema.Want{Gate: s, N: 2})
	wantErr(t, err, nil)
	wantStats(t, s, 3, 0)
	p.Release()
	_, err = sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: 2}, sema.Want{Gate: s, N: 2})
	wantErr(t, err, sema.ErrTooLarge)
	single, err := sema.AcquireAll(t.Context(), sema.Want{Gate: s, N: 1}, sema.Want{Gate: s, N: 1})
	wantErr(t, err, nil)
	if single.Weight() != 2 || single.Lease() != nil {
		t.Error("a single semaphore has a joint lease")
	}
	single.Release()
	nothing, err := sema.AcquireAll(t.Context())
	wantErr(t, err, nil)
	nothing.Release()
	wantStats(t, s, 0, 0)
}

func TestAcquireAll_AcquiresOtherGatesInOneOrder(t *testing.T) {
	var journal []string
	gate := func(name string, scope sema.Scope) *fakeGate {
		return &fakeGate{name: name, scope: scope, lease: &plainLease{}, journal: &journal}
	}
	b, a := gate("b", sema.ProcessScope), gate("a", sema.ProcessScope)
	host, fleet := gate("host", sema.HostScope), gate("fleet", sema.FleetScope)
	local := sema.New(1)
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: b, N: 1}, sema.Want{Gate: local, N: 1},
		sema.Want{Gate: host, N: 1}, sema.Want{Gate: a, N: 1}, sema.Want{Gate: fleet, N: 1})
	wantErr(t, err, nil)
	if want := []string{"fleet", "host", "a", "b"}; !slices.Equal(journal, want) {
		t.Errorf("acquired in order %v, want %v", journal, want)
	}
	p.Release()
	for _, g := range []*fakeGate{a, b, host, fleet} {
		if n := g.lease.(*plainLease).released.Load(); n != 1 {
			t.Errorf("%s released %d times", g.name, n)
		}
	}
	wantStats(t, local, 0, 0)
}

func TestAcquireAll_ReleasesWhenAGateFails(t *testing.T) {
	lease := &plainLease{}
	unavailable := errors.New("store unavailable")
	_, err := sema.AcquireAll(t.Context(),
		sema.Want{Gate: &fakeGate{name: "a", lease: lease}, N: 1},
		sema.Want{Gate: &fakeGate{name: "b", err: unavailable}, N: 1})
	wantErr(t, err, unavailable)
	if lease.released.Load() != 1 {
		t.Error("the permit was not released")
	}
}

func TestAcquireAll_PermitIsLostWithAnyPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newFakeLease(1), newFakeLease(1)
		p, err := sema.AcquireAll(t.Context(),
			sema.Want{Gate: &fakeGate{name: "one", lease: one}, N: 1},
			sema.Want{Gate: &fakeGate{name: "two", lease: two}, N: 1},
			sema.Want{Gate: sema.New(1), N: 1})
		wantErr(t, err, nil)
		lost := p.Lost()
		close(two.lost)
		<-lost
		wantErr(t, p.Err(), sema.ErrLost)
		p.Release()
	})
}

func TestAcquireAll_InALIFOQueueOvertakesABlockedWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := sema.New(1, sema.LIFO), sema.New(1), sema.New(1)
		heldA, heldB := mustAcquire(t, a, 1), mustAcquire(t, b, 1)
		both := func(x, y sema.Gate) <-chan result {
			got := make(chan result, 1)
			go func() {
				p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: x, N: 1}, sema.Want{Gate: y, N: 1})
				got <- result{p, err}
			}()
			synctest.Wait()
			return got
		}
		blocked, ready := both(a, b), both(a, c)
		heldA.Release()
		synctest.Wait()
		if isDone(blocked) || !isDone(ready) {
			t.Fatal("only the waiter whose gates are free must be granted")
		}
		(<-ready).permit.Release()
		heldB.Release()
		(<-blocked).permit.Release()
	})
}

func TestAcquireAll_IsRejectedInsteadOfParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(2, sema.ParkOversize), sema.New(5)
		_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 3}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, sema.ErrTooLarge)
		held := mustAcquire(t, a, 1)
		joint := make(chan result, 1)
		go func() {
			p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 2}, sema.Want{Gate: b, N: 1})
			joint <- result{p, err}
		}()
		synctest.Wait()
		a.Resize(1)
		synctest.Wait()
		wantErr(t, (<-joint).err, sema.ErrTooLarge)
		mustAcquire(t, b, 1).Release()
		held.Release()
	})
}

func TestAcquireAll_RespectsMaxWaiters(t *testing.T) {
	a, b := sema.New(1, sema.Name("a"), sema.MaxWaiters(0)), sema.New(1)
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
	wantErr(t, err, nil) // no caller had to wait
	p.Release()
	held := mustAcquire(t, b, 1)
	_, err = sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
	wantErr(t, err, sema.ErrQueueFull)
	wantStats(t, a, 0, 0)
	wantStats(t, b, 1, 0)
	held.Release()
}

// A wrapper is a gate whose type is not a pointer.
type wrapper struct{ sema.Gate }

func TestAcquireAll_OrdersGatesThatAreValues(t *testing.T) {
	a, b := sema.New(1), sema.New(1)
	var racing sync.WaitGroup
	for _, pair := range [][2]sema.Gate{{wrapper{a}, wrapper{b}}, {wrapper{b}, wrapper{a}}} {
		racing.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				p, err := sema.AcquireAll(ctx, sema.Want{Gate: pair[0], N: 1}, sema.Want{Gate: pair[1], N: 1})
				cancel()
				if err != nil {
					t.Error("blocked each other:", err)
					return
				}
				p.Release()
			}
		})
	}
	racing.Wait()
	type odd struct {
		sema.Gate
		extra any
	}
	_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: odd{a, func() {}}, N: 1}, sema.Want{Gate: odd{b, func() {}}, N: 1})
	wantErr(t, err, nil) // gates that are not comparable must not panic
}

// TestAcquireAll_ReleasesAllWhenAnObserverPanics checks that a release that a panic
// interrupts still returns every permit.
func TestAcquireAll_ReleasesAllWhenAnObserverPanics(t *testing.T) {
	panicking := sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventReleased {
			panic("observer")
		}
	})
	a, b, c := sema.New(1), sema.New(1, sema.Observe(panicking)), sema.New(1, sema.Observe(panicking))
	p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1}, sema.Want{Gate: c, N: 1})
	wantErr(t, err, nil)
	wantPanic(t, "an observer that panics", p.Release)
	for _, s := range []*sema.Semaphore{a, b, c} {
		wantStats(t, s, 0, 0)
	}
}

func TestAcquireAll_RejectsNilGates(t *testing.T) {
	for _, gate := range []sema.Gate{nil, (*sema.Semaphore)(nil), (*sema.Striped)(nil)} {
		_, err := sema.AcquireAll(t.Context(), sema.Want{Gate: gate, N: 1})
		wantErr(t, err, sema.ErrInvalid)
	}
}

func TestDo_RejectsNilArguments(t *testing.T) {
	s := sema.New(1)
	ran := false
	run := func(context.Context) error { ran = true; return nil }
	var noContext context.Context
	wantErr(t, sema.Do(t.Context(), nil, 1, run), sema.ErrInvalid)
	wantErr(t, sema.Do(noContext, s, 1, run), sema.ErrInvalid)
	wantErr(t, sema.Do(t.Context(), s, -1, run), sema.ErrInvalid)
	if wantStats(t, s, 0, 0); ran {
		t.Error("fn ran")
	}
	if permits := sema.Held(noContext); permits != nil {
		t.Error(permits)
	}
}
