package fleet_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/rate"
)

var _ rate.Limiter = (*fleet.Semaphore)(nil)

// wantUsed fails unless so much of a rate is used at the store.
func wantUsed(t *testing.T, store fleet.Store, want int64) {
	t.Helper()
	if used, _ := inUse(t, store); used != want {
		t.Errorf("%d used, want %d", used, want)
	}
}

// sent waits until the client has sent what it has to.
func sent() { time.Sleep(10 * time.Millisecond) }

// TestSettle_RefundsTheFleetAtOnce checks that a waiter of another client gets a refund as
// soon as the store has it.
func TestSettle_RefundsTheFleetAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := newClient(t, store)
		b, _ := newClient(t, store)
		of := of(10, fleet.Rate(time.Minute))
		p := mustAcquire(t, semaphore(t, a, of), 8)
		start, got := time.Now(), make(chan time.Duration)
		go func() {
			mustAcquire(t, semaphore(t, b, of), 5)
			got <- time.Since(start)
		}()
		time.Sleep(time.Second)
		semaphore(t, a, of).Settle(p, 5)
		if took := <-got; took > 1100*time.Millisecond {
			t.Errorf("the refund reached the other client after %v", took)
		}
		wantUsed(t, store, 10)
		semaphore(t, a, of).Settle(p, 0)
		p.Release()
		semaphore(t, a, of).Settle(p, 0) // only the first one counts
		sent()
		wantUsed(t, store, 10)
	})
}

func TestSettle_ChargesTheExcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		p, q := mustAcquire(t, s, 2), mustAcquire(t, s, 2)
		s.Settle(p, 7)
		sent()
		wantUsed(t, store, 9)
		s.Settle(q, math.MaxInt64) // counts as the capacity
		sent()
		wantUsed(t, store, 17)
		_, err := s.TryAcquire(t.Context(), 1)
		wantErr(t, err, sema.ErrFull)
		time.Sleep(time.Minute)
		mustAcquire(t, s, 10)
	})
}

// TestSettle_AfterTheWindow: nothing is left to refund, and the excess is charged from now.
func TestSettle_AfterTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		p, q := mustAcquire(t, s, 4), mustAcquire(t, s, 4)
		time.Sleep(61 * time.Second)
		mustAcquire(t, s, 1)
		s.Settle(p, 1)
		sent()
		wantUsed(t, store, 1)
		s.Settle(q, 9)
		sent()
		wantUsed(t, store, 6)
	})
}

// TestSettle_SurvivesLostReplies: a settlement that is sent several times counts once.
func TestSettle_SurvivesLostReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(time.Hour)))
		p := mustAcquire(t, s, 4)
		conn.loseReplies.Store(true)
		s.Settle(p, 6)
		time.Sleep(5 * time.Second)
		conn.loseReplies.Store(false)
		time.Sleep(5 * time.Second)
		if s.Stats().SessionsLost > 0 {
			t.Fatal("the session was lost")
		}
		wantUsed(t, store, 6)
	})
}

// TestSettle_AfterALostSession: the new session cannot refund a grant of the old one, which
// stays charged. It charges the excess, once.
func TestSettle_AfterALostSession(t *testing.T) {
	t.Parallel()
	for _, settledBefore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, conn := newClient(t, store)
			s := semaphore(t, c, of(10, fleet.Rate(time.Hour)))
			p, q := mustAcquire(t, s, 2), mustAcquire(t, s, 2)
			conn.cut.Store(true)
			if settledBefore {
				s.Settle(p, 0)
				s.Settle(q, 5)
			}
			time.Sleep(time.Minute)
			if !settledBefore {
				s.Settle(p, 0)
				s.Settle(q, 5)
			}
			wantUsed(t, store, 4)
			conn.cut.Store(false)
			time.Sleep(time.Minute) // no caller acquires: the charge alone opens a session
			wantUsed(t, store, 7)
			mustAcquire(t, s, 3)
		})
	}
}

// TestSettle_DebtsOfAStoreThatStaysAwayEnd checks that a charge is dropped when it would have
// left the window, so that a client does not ask for ever.
func TestSettle_DebtsOfAStoreThatStaysAwayEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(5*time.Minute)))
		p := mustAcquire(t, s, 2)
		conn.cut.Store(true)
		s.Settle(p, 5)
		time.Sleep(10 * time.Minute)
		failures := s.Stats().Failures
		time.Sleep(10 * time.Minute)
		if more := s.Stats().Failures - failures; more > 0 {
			t.Errorf("%d exchanges for a charge that has left the window", more)
		}
	})
}

// TestSettle_ClientThatCrashed: what it had acquired stays charged until it leaves the window.
func TestSettle_ClientThatCrashed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, conn := newClient(t, store)
		b, _ := newClient(t, store)
		of := of(10, fleet.Rate(time.Minute))
		mustAcquire(t, semaphore(t, a, of), 10)
		conn.cut.Store(true)
		start := time.Now()
		mustAcquire(t, semaphore(t, b, of), 1)
		if took := time.Since(start); took < 59*time.Second || took > 63*time.Second {
			t.Errorf("the permits returned after %v", took)
		}
	})
}

// TestSettle_IdleSessionIsKeptForTheWindow: only the session of a grant can refund it.
func TestSettle_IdleSessionIsKeptForTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(30*time.Minute)))
		p := mustAcquire(t, s, 10)
		time.Sleep(20 * time.Minute)
		s.Settle(p, 0)
		sent()
		wantUsed(t, store, 0)
		time.Sleep(time.Hour)
		if snapshot, err := store.Inspect(t.Context(), "db"); err != nil || len(snapshot.Sessions) > 0 {
			t.Errorf("%d idle sessions, %v", len(snapshot.Sessions), err)
		}
	})
}

func TestSettle_IsSentBeforeClose(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.CloseMode{fleet.CloseWait, fleet.CloseRelease, fleet.CloseAbandon} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			other, _ := newClient(t, store)
			c, _ := newClient(t, store)
			of := of(10, fleet.Rate(time.Minute))
			s := semaphore(t, c, of)
			p, q := mustAcquire(t, s, 5), mustAcquire(t, s, 1)
			mustAcquire(t, semaphore(t, other, of), 1)
			s.Settle(p, 0)
			s.Settle(q, 3)
			wantErr(t, s.Close(t.Context(), mode), nil)
			wantUsed(t, store, 4)
		})
	}
}

func TestSettle_PartsAreSettledEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		p := mustAcquire(t, s, 8)
		a, b, err := p.Split(3)
		wantErr(t, err, nil)
		s.Settle(p, 0) // the whole permit is inert
		s.Settle(a, 1)
		sent()
		wantUsed(t, store, 6)
		s.Settle(b, 7)
		s.Settle(a, 0)
		sent()
		wantUsed(t, store, 8)
	})
}

// TestSettle_WhatCannotBeSettled: inert permits and semaphores that are no rate; permits of
// other gates and negative costs are errors of the program.
func TestSettle_WhatCannotBeSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(10, fleet.Rate(time.Minute)))
		for name, o := range map[string]spec{"exact": of(5), "pooled": of(5, fleet.ModePooled)} {
			plain, err := c.Semaphore(name, o.capacity, o.opts...)
			wantErr(t, err, nil)
			p := mustAcquire(t, plain, 2)
			plain.Settle(p, 0)
			if !p.Held() || plain.Delay(5) != 0 {
				t.Errorf("%s: held %t, delay %v", name, p.Held(), plain.Delay(5))
			}
			plain.PauseUntil(time.Now().Add(time.Hour))
			p.Release()
			mustAcquire(t, plain, 5).Release()
		}
		s.Settle(sema.Permit{}, 5)
		p := mustAcquire(t, s, 1)
		for what, settle := range map[string]func(){
			"a negative cost":          func() { s.Settle(p, -1) },
			"a permit of another gate": func() { s.Settle(mustAcquire(t, sema.New(1), 1), 0) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("Settle accepts %s", what)
					}
				}()
				settle()
			}()
		}
	})
}

// TestRate_CancelledAcquiresCostNothing ends contexts at any moment of an acquire.
func TestRate_CancelledAcquiresCostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		conn.delay = time.Millisecond
		s := semaphore(t, c, of(1000, fleet.Rate(time.Hour)))
		mustAcquire(t, s, 1)
		kept := int64(1)
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*100*time.Microsecond)
			if i%2 == 0 { // a context without a deadline, which the store cannot know
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(i%60)*100*time.Microsecond, cancel)
			}
			if _, err := s.Acquire(ctx, 2); err == nil {
				kept += 2
			} else if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			cancel()
		}
		time.Sleep(time.Second)
		wantUsed(t, store, kept)
		if kept == 1 || kept > 400 {
			t.Errorf("%d permits acquired: the contexts did not end while acquires were in flight", kept)
		}
	})
}

// A lateContext ends without closing its channel, as a custom context may for a moment.
type lateContext struct {
	context.Context
	ended atomic.Bool
}

func (c *lateContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// An endingStore ends a context when it has applied a batch.
type endingStore struct {
	fleet.Store
	ctx *lateContext
}

func (s endingStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	reply, err := s.Store.Apply(ctx, name, b)
	s.ctx.ended.Store(true)
	return reply, err
}

// TestRate_GrantThatIsNotWantedAnyMoreCostsNothing: the context ends after the client has
// received the grant, and before the caller has.
func TestRate_GrantThatIsNotWantedAnyMoreCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		ctx := &lateContext{}
		var cancel context.CancelFunc
		ctx.Context, cancel = context.WithCancel(t.Context())
		defer cancel()
		c, _ := newClient(t, endingStore{store, ctx})
		_, err := semaphore(t, c, of(10, fleet.Rate(time.Hour))).Acquire(ctx, 4)
		if err == nil {
			t.Error("acquired although the context has ended")
		}
		sent()
		wantUsed(t, store, 0)
	})
}
