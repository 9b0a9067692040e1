package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/sematest"
)

// A poolGate is a pool as a gate: its permits are items.
type poolGate struct{ pool *pool.Pool[*conn] }

func (g poolGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	return permitOf(ctx, n, g.pool.Get)
}

func (g poolGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return permitOf(ctx, n, g.pool.TryGet)
}

func permitOf(ctx context.Context, n int64, get func(context.Context) (pool.Item[*conn], error)) (sema.Permit, error) {
	switch {
	case ctx != nil && n == 0:
		return sema.Permit{}, nil
	case ctx != nil && n < 0:
		return sema.Permit{}, sema.ErrInvalid
	case ctx != nil && n > 1:
		return sema.Permit{}, sema.ErrTooLarge
	}
	item, err := get(ctx)
	if err != nil {
		return sema.Permit{}, err
	}
	return sema.NewPermit(1, item), nil // an Item is a sema.Lease
}

func TestPool_Conforms(t *testing.T) {
	for name, config := range map[string]func(capacity int64) pool.Config[*conn]{
		"Size": func(capacity int64) pool.Config[*conn] { return pool.Config[*conn]{Size: capacity} },
		"Gate": func(capacity int64) pool.Config[*conn] { return pool.Config[*conn]{Gate: sema.New(capacity)} },
		"both": func(capacity int64) pool.Config[*conn] {
			return pool.Config[*conn]{Size: capacity, Gate: sema.New(capacity)}
		},
		"lifetime": func(capacity int64) pool.Config[*conn] {
			return pool.Config[*conn]{Size: capacity, MaxLifetime: 24 * time.Hour, MinIdle: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sematest.Check(t, sematest.Traits{FIFO: true}, func(t *testing.T, capacity int64) sema.Gate {
				p := newPool(t, &server{}, config(capacity))
				warm(t, p, int(capacity))
				return poolGate{p}
			})
		})
	}
}

// warm opens n items, so that tries find idle ones.
func warm(t *testing.T, p *pool.Pool[*conn], n int) {
	t.Helper()
	for range n {
		defer mustGet(t, p).Release()
	}
}

func TestPool_GateBoundsWhatIsInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := sema.New(2)
		s := &server{}
		p, q := newPool(t, s, pool.Config[*conn]{Gate: gate}), newPool(t, &server{}, pool.Config[*conn]{Gate: gate})
		a, b := mustGet(t, p), mustGet(t, q)
		waiter := getting(t.Context(), p)
		wantPending(t, waiter)
		if a.Permit().Owner() == nil || gate.Stats().InUse != 2 || gate.Stats().Waiters != 1 {
			t.Errorf("%+v", gate.Stats())
		}
		b.Release()
		c := wantItem(t, waiter)
		a.Release()
		c.Discard()
		if gate.Stats().InUse != 0 {
			t.Errorf("%+v", gate.Stats())
		}
		wantState(t, p, 1, 1, 0)
		item, err := p.TryGet(t.Context())
		wantErr(t, err, nil)
		v, permit := item.Keep()
		if gate.Stats().InUse != 1 || !permit.Held() {
			t.Error("Keep returns the permit of the gate")
		}
		s.Close(v)
		permit.Release()
		if gate.Stats().InUse != 0 {
			t.Errorf("%+v", gate.Stats())
		}
		wantState(t, p, 0, 0, 0)
	})
}

func TestPool_GetViaChargesAnotherGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate, tenant := sema.New(5), sema.New(4)
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2, Gate: gate})
		a, err := p.GetVia(t.Context(), tenant, 3)
		wantErr(t, err, nil)
		if tenant.Stats().InUse != 3 || gate.Stats().InUse != 0 || a.Permit().Weight() != 3 || p.Stats().InUse != 1 {
			t.Errorf("%+v, %+v", tenant.Stats(), gate.Stats())
		}
		_, err = p.GetVia(t.Context(), tenant, 9)
		wantErr(t, err, sema.ErrTooLarge)
		b, err := p.GetVia(t.Context(), tenant, 1)
		wantErr(t, err, nil)
		// Size holds whatever the gate admits.
		other := sema.New(10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.GetVia(ctx, other, 10)
		wantErr(t, err, context.DeadlineExceeded)
		if other.Stats().InUse != 0 {
			t.Error("a permit of the gate is lost")
		}
		a.Release()
		b.Discard()
		if tenant.Stats().InUse != 0 {
			t.Errorf("%+v", tenant.Stats())
		}
		wantState(t, p, 1, 1, 0)
		mustGet(t, p).Release() // the slot does not remember the tenant
		wantState(t, p, 1, 1, 0)
		if gate.Stats().InUse != 0 || tenant.Stats().Acquired != 2 {
			t.Errorf("%+v, %+v", gate.Stats(), tenant.Stats())
		}
	})
}

func TestPool_GateOfPermitsThatAreSpent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2, Gate: rate.New(2, time.Minute)})
		for range 2 {
			mustGet(t, p).Release()
		}
		_, err := p.TryGet(t.Context())
		wantErr(t, err, sema.ErrFull)
		start := time.Now()
		mustGet(t, p).Release()
		if time.Since(start) != 30*time.Second {
			t.Errorf("after %v", time.Since(start))
		}
		wantState(t, p, 1, 1, 0)
	})
}

// TestPool_CloseAndDrainRejectCallersAtAGate: their gate is not closed.
func TestPool_CloseAndDrainRejectCallersAtAGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := sema.New(1)
		p := newPool(t, &server{}, pool.Config[*conn]{Gate: gate})
		held, err := gate.Acquire(t.Context(), 1)
		wantErr(t, err, nil)
		defer held.Release()
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancelled := getting(ctx, p)
		cancel(cause)
		wantFailed(t, cancelled, cause)
		waiter := getting(t.Context(), p)
		wantPending(t, waiter)
		wantErr(t, p.Drain(t.Context()), nil)
		wantFailed(t, waiter, sema.ErrDraining)
		_, err = p.Get(t.Context())
		wantErr(t, err, sema.ErrDraining)
		p.Resume()
		waiter = getting(t.Context(), p)
		wantPending(t, waiter)
		p.Close()
		wantFailed(t, waiter, sema.ErrClosed)
		_, err = p.Get(t.Context())
		wantErr(t, err, sema.ErrClosed)
		_, err = p.TryGet(t.Context())
		wantErr(t, err, sema.ErrClosed)
		if st := gate.Stats(); st.InUse != 1 || st.Waiters != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPool_CloseAfterDrainRejectsWithErrClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Gate: sema.New(1)})
		wantErr(t, p.Drain(t.Context()), nil)
		p.Close()
		p.Resume()
		_, err := p.Get(t.Context())
		wantErr(t, err, sema.ErrClosed)
		wantErr(t, p.Drain(t.Context()), nil)
		_, err = p.Get(t.Context())
		wantErr(t, err, sema.ErrClosed)
	})
}

// A capturingGate keeps the context of the last acquire.
type capturingGate struct {
	sema.Gate
	ctx context.Context
}

func (g *capturingGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	g.ctx = ctx
	return g.Gate.Acquire(ctx, n)
}

// TestPool_ContextOfAGateEnds: nothing refers to the caller's context after Get.
func TestPool_ContextOfAGateEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := &capturingGate{Gate: sema.New(1)}
		p := newPool(t, &server{}, pool.Config[*conn]{Gate: gate})
		ctx := context.WithValue(t.Context(), valueKey{}, "trace")
		item := mustGet(t, p)
		waiter := getting(ctx, p) // its gate waits
		if gate.ctx.Err() != nil || gate.ctx.Value(valueKey{}) != "trace" {
			t.Error("the context of the gate is not that of the caller")
		}
		item.Release()
		wantItem(t, waiter).Release()
		if gate.ctx.Err() == nil {
			t.Error("the context of a caller that waited does not end")
		}
	})
}

// lostLease is a lease that is lost, as one of a fleet semaphore may be.
type lostLease struct {
	sema.Permit
	lost chan struct{}
}

func (l *lostLease) Lost() <-chan struct{} { return l.lost }
func (l *lostLease) Err() error {
	select {
	case <-l.lost:
		return sema.ErrLost
	default:
		return nil
	}
}

// A losingGate grants permits that can be lost.
type losingGate struct {
	sema.Gate
	lost chan struct{}
}

func (g *losingGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	p, err := g.Gate.Acquire(ctx, n)
	if err != nil {
		return p, err
	}
	return sema.NewPermit(n, &lostLease{p, g.lost}), nil
}

func TestPool_LostLeaseIsVisible(t *testing.T) {
	bubble(t, func(t *testing.T) {
		gate := &losingGate{sema.New(1), make(chan struct{})}
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Gate: gate})
		item := mustGet(t, p)
		if item.Permit().Lost() == nil || item.Permit().Err() != nil {
			t.Fatal("the permit cannot be lost")
		}
		v, permit := item.Keep()
		if permit.Lost() == nil || permit.Err() != nil {
			t.Error("a kept permit cannot be lost")
		}
		s.Close(v)
		permit.Release()
		err := p.Do(t.Context(), func(ctx context.Context, item pool.Item[*conn]) error {
			close(gate.lost)
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), sema.ErrLost)
			wantErr(t, item.Permit().Err(), sema.ErrLost)
			item.Discard()
			return nil
		})
		wantErr(t, err, sema.ErrLost)
		synctest.Wait()
		wantState(t, p, 0, 0, 0)
		err = p.Do(t.Context(), func(context.Context, pool.Item[*conn]) error { t.Error("fn runs with a lost lease"); return nil })
		wantErr(t, err, sema.ErrLost)
		wantState(t, p, 1, 1, 0)
	})
}
