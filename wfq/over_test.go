package wfq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// TestOver_Runway: one aircraft takes off every 90 s, those of little fuel first.
func TestOver_Runway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runway := wfq.Over(rate.New(1, 90*time.Second), 1)
		runway.Set("low fuel", wfq.Share{Tier: 1})
		start := time.Now()
		var l log
		for _, name := range []string{"first", "second", "third"} {
			l.start(t, runway.Class(""), name, 1, 0)
		}
		l.start(t, runway.Class("low fuel"), "low fuel", 1, 0)
		last := make(chan time.Duration, 1)
		go func() {
			p, err := runway.Acquire(ctx, 1)
			if err != nil {
				t.Error(err)
			}
			p.Release()
			last <- time.Since(start)
		}()
		// The second waits at the rate already when the fourth comes.
		l.want(t, "first", "second", "low fuel", "third")
		if took := <-last; took != 4*90*time.Second {
			t.Errorf("the fifth aircraft took off after %v, want 6m0s", took)
		}
		if st := runway.Stats(); st.InUse != 0 || st.Acquired != 5 {
			t.Errorf("%+v: permits of a rate are spent", st)
		}
	})
}

// TestOver_Hierarchy shares a company's capacity among departments, and the part of a
// department among its teams.
func TestOver_Hierarchy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		company := wfq.New(12)
		company.Set("research", wfq.Share{Weight: 2})
		company.Set("sales", wfq.Share{Weight: 1})
		research := wfq.Over(company.Class("research"), 12)
		sales := wfq.Over(company.Class("sales"), 12)
		teams := []*tenant{
			{name: "vision", callers: 20, hold: 10 * time.Millisecond, share: wfq.Share{Weight: 3}},
			{name: "speech", callers: 60, hold: 30 * time.Millisecond, share: wfq.Share{Weight: 1}},
		}
		all := &tenant{name: "all", callers: 80, hold: 20 * time.Millisecond, share: wfq.Share{Weight: 1}}
		done := make(chan struct{})
		go func() {
			run(sales, time.Minute, all)
			close(done)
		}()
		run(research, time.Minute, teams...)
		<-done
		t.Logf("research: vision %v, speech %v; sales %v", teams[0].used, teams[1].used, all.used)
		department := &tenant{used: teams[0].used + teams[1].used, share: wfq.Share{Weight: 2}}
		if j := jain(teams...); j < 0.98 {
			t.Errorf("teams: Jain's index %.4f", j)
		}
		if j := jain(department, all); j < 0.98 {
			t.Errorf("departments: Jain's index %.4f", j)
		}
	})
}

func TestOver_FleetSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fleet.New(memstore.New())
		defer client.Close(ctx)
		shared, err := client.Semaphore("gpu", 2)
		if err != nil {
			t.Fatal(err)
		}
		q := wfq.Over(shared, 2)
		p, err := q.Class("a").Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		if p.Lost() == nil || p.Err() != nil || p.Weight() != 2 {
			t.Errorf("%v: want a permit with a lease", p)
		}
		first, rest, err := p.Split(1)
		if err != nil {
			t.Fatal(err)
		}
		first.Release()
		if st := q.Stats(); st.InUse != 1 || shared.Stats().InUse != 1 {
			t.Errorf("after the release of a part: %d and %d in use", st.InUse, shared.Stats().InUse)
		}
		rest.Release()
		if st := q.Stats(); st.InUse != 0 || shared.Stats().InUse != 0 {
			t.Errorf("in the end: %d and %d in use", st.InUse, shared.Stats().InUse)
		}
	})
}

// TestOver_FailuresReturnThePermit checks that whatever the gate behind the queue does,
// the queue gets its permits back.
func TestOver_FailuresReturnThePermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		behind := sema.New(1, sema.Name("behind"))
		q := wfq.Over(behind, 3, sema.Name("front"), sema.MaxWait(time.Second))
		held := mustAcquire(t, q, 1)
		if _, err := q.TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) { //semavet:ignore wants an error
			t.Errorf("try: %v", err)
		}
		start := time.Now()
		if _, err := q.Acquire(ctx, 1); !errors.Is(err, sema.ErrTimeout) || time.Since(start) != time.Second { //semavet:ignore wants an error
			t.Errorf("acquire: %v after %v, want ErrTimeout after the MaxWait of the queue", err, time.Since(start))
		}
		cause := errors.New("cause")
		ended, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(time.Millisecond, func() { cancel(cause) })
		if _, err := q.Acquire(ended, 1); err != cause { //semavet:ignore wants an error
			t.Errorf("cancelled: %v", err)
		}
		if _, err := q.Acquire(ctx, 2); !errors.Is(err, sema.ErrTooLarge) { //semavet:ignore wants an error
			t.Errorf("too large for the gate: %v", err)
		}
		held.Release()
		wantIdle(t, q)

		q = wfq.Over(lateGate{behind, cancel}, 3)
		ended, cancel = context.WithCancelCause(ctx)
		if _, err := wfq.Over(lateGate{behind, cancel}, 3).Acquire(ended, 1); err != context.Canceled || behind.Stats().InUse != 0 { //semavet:ignore wants an error
			t.Errorf("cancelled while the gate granted: %v, %d held of the gate", err, behind.Stats().InUse)
		}
		wantIdle(t, q)

		q = wfq.Over(panicGate{}, 3)
		func() {
			defer func() { recover() }()
			q.Acquire(ctx, 1) //semavet:ignore panics
		}()
		wantIdle(t, q)
	})
}

// TestOver_CallersAtTheGate checks that callers that wait at the gate behind a queue are
// counted, and rejected when the queue is drained or closed.
func TestOver_CallersAtTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		behind := sema.New(1)
		held := mustAcquire(t, behind, 1)
		q := wfq.Over(behind, 3)
		var l log
		l.start(t, q.Class("a"), "drained", 1, 0)
		if err := q.Drain(ctx); err != nil {
			t.Error(err)
		}
		q.Resume()
		l.start(t, q.Class("a"), "closed", 1, 0)
		q.Close()
		l.want(t, "drained: draining", "closed: closed")
		if st := q.Stats(); st.Waited != 2 || st.Rejected != 2 {
			t.Errorf("%+v", st.Counts)
		}
		wantIdle(t, q)

		short := wfq.Over(behind, 3, sema.MaxWait(time.Second))
		short.Acquire(ctx, 1) //semavet:ignore times out
		ended, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		short.Acquire(ended, 1) //semavet:ignore ends without a permit
		if st := short.Stats(); st.Waited != 2 || st.TimedOut != 1 || st.Cancelled != 1 {
			t.Errorf("%+v", st.Counts)
		}
		held.Release()
	})
}

// TestOver_GateOfOtherWeights checks that a gate whose permits weigh less loses nothing.
func TestOver_GateOfOtherWeights(t *testing.T) {
	t.Parallel()
	q := wfq.Over(lightGate{sema.New(10)}, 3)
	for range 3 {
		mustAcquire(t, q, 3).Release()
	}
	wantIdle(t, q)
}

// A lightGate acquires one permit, whatever the weight.
type lightGate struct{ sema.Gate }

func (g lightGate) TryAcquire(ctx context.Context, _ int64) (sema.Permit, error) {
	return g.Gate.TryAcquire(ctx, 1)
}

// wantIdle wants a queue of which nothing is in use.
func wantIdle(t *testing.T, q *wfq.Queue) {
	t.Helper()
	if st := q.Stats(); st.InUse != 0 {
		t.Errorf("%d in use", st.InUse)
	}
	if err := q.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// A lateGate grants a permit to a caller whose context has just ended.
type lateGate struct {
	sema.Gate
	cancel context.CancelCauseFunc
}

func (g lateGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := g.Gate.Acquire(ctx, n)
	g.cancel(nil)
	return p, err
}

type panicGate struct{ sema.Gate }

func (panicGate) Acquire(context.Context, int64) (sema.Permit, error) { panic("broken gate") }

// TestOver_PermitsOfARateCanBeSettled checks that a caller gets the permit of the rate itself.
func TestOver_PermitsOfARateCanBeSettled(t *testing.T) {
	t.Parallel()
	r := rate.New(5, time.Hour)
	q := wfq.Over(r, 5)
	r.Settle(mustAcquire(t, q.Class("a"), 3), 1)
	if st := r.Stats(); st.Free != 4 {
		t.Errorf("%d free, want 4", st.Free)
	}
	wantIdle(t, q)
}

// TestQueue_PanicOfAnObserver checks that a panic of an observer reaches the caller, and that
// the caller keeps no permit and no place in the queue.
func TestQueue_PanicOfAnObserver(t *testing.T) {
	t.Parallel()
	for _, kind := range []sema.EventKind{sema.EventQueued, sema.EventAcquired, sema.EventTimedOut} {
		for name, create := range map[string]func(opts ...wfq.Option) *wfq.Queue{
			"queue":           func(opts ...wfq.Option) *wfq.Queue { return wfq.New(1, opts...) },
			"over semaphores": func(opts ...wfq.Option) *wfq.Queue { return wfq.Over(sema.New(1), 1, opts...) },
			"over rates":      func(opts ...wfq.Option) *wfq.Queue { return wfq.Over(rate.New(100, time.Second), 1, opts...) },
		} {
			t.Run(kind.String()+" of "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var broken atomic.Bool
					q := create(sema.MaxWait(time.Second), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
						if e.Kind == kind && broken.Load() {
							panic("broken observer")
						}
					})))
					if kind != sema.EventAcquired {
						q.Resize(0) // so that the caller waits
					}
					broken.Store(true)
					func() {
						defer func() {
							if recover() == nil {
								t.Error("the panic was lost")
							}
						}()
						q.Acquire(ctx, 1) //semavet:ignore panics
					}()
					broken.Store(false)
					q.Resize(1)
					wantIdle(t, q)
					mustAcquire(t, q, 1).Release()
					wantIdle(t, q)
				})
			})
		}
	}
}

// TestOver_SharesARate: a tenant that comes late gets its share of a rate at once, and each
// gets as many permits as its weight, however long the first has waited at the gate.
func TestOver_SharesARate(t *testing.T) {
	t.Parallel()
	for _, weight := range []int64{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			api := rate.New(100, time.Second, rate.Burst(1))
			api.PauseUntil(time.Now().Add(time.Minute)) // so that the first of noisy waits at the gate
			q := wfq.Over(api, 1)
			q.Set("quiet", wfq.Share{Weight: weight})
			var l log
			for range 60 {
				l.start(t, q.Class("noisy"), "noisy", 1, 0)
			}
			time.Sleep(time.Second)
			for range 15 {
				l.start(t, q.Class("quiet"), "quiet", 1, 0)
			}
			time.Sleep(time.Hour)
			l.mu.Lock()
			defer l.mu.Unlock()
			quiet, noisy := 0, 0
			for _, name := range l.served {
				if name == "quiet" {
					quiet++
				} else if quiet < 15 {
					noisy++
				}
			}
			if most := 15/int(weight) + 2; quiet != 15 || noisy > most {
				t.Errorf("weight %d: %d of quiet served after %d of noisy, want 15 after at most %d\n%v", weight, quiet, noisy, most, l.served)
			}
		})
	}
}

// TestOver_ExpectedWaitAtARate: the wait is that of the callers ahead, at the rate.
func TestOver_ExpectedWaitAtARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.Over(rate.New(100, time.Second, rate.Burst(1)), 1)
		tenant := q.Class("tenant")
		var l log
		for range 61 {
			l.start(t, tenant, "tenant", 1, 0)
		}
		time.Sleep(205 * time.Millisecond) // 21 are served, 1 is at the rate, 39 wait
		if wait := tenant.ExpectedWait(1); wait < 350*time.Millisecond || wait > 450*time.Millisecond {
			t.Errorf("expected wait %v after %d others at 100 a second", wait, tenant.Stats().Waiters)
		}
		time.Sleep(time.Minute)
	})
}

// TestOver_WaitAtTheGateIsNotUse: while the first caller of a class waits at the gate,
// another class arrives. It is not charged for that wait.
func TestOver_WaitAtTheGateIsNotUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(1)
		busy, err := gate.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		q := wfq.Over(gate, 1)
		var l log
		for range 5 {
			l.start(t, q.Class("early"), "early", 1, 10*time.Millisecond)
		}
		time.Sleep(time.Second)
		for range 3 {
			l.start(t, q.Class("late"), "late", 1, 10*time.Millisecond)
		}
		busy.Release()
		l.want(t, "early", "late", "early", "late", "early", "late", "early", "early")
	})
}

// TestOver_RateWithOneCaller: a class with one caller at a time gets its share of a rate,
// although it competes only now and then.
func TestOver_RateWithOneCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.Over(rate.New(100, time.Second, rate.Burst(1)), 1)
		q.Set("many", wfq.Share{Weight: 4})
		for range 400 {
			go q.Class("many").Acquire(ctx, 1)
		}
		go func() {
			for err := error(nil); err == nil; {
				_, err = q.Class("one").Acquire(ctx, 1)
			}
		}()
		time.Sleep(3 * time.Second)
		if one, all := q.Class("one").Stats().Acquired, q.Stats().Acquired; one < all/6 || one > all/4 {
			t.Errorf("%d of %d, want a fifth", one, all)
		}
		q.Close()
	})
}
