package pool_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

func TestPool_ResizeDownClosesSurplus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 6})
		var items []pool.Item[*conn]
		for range 6 {
			items = append(items, mustGet(t, p))
		}
		for _, item := range items[4:] {
			item.Release()
		}
		p.Resize(3)
		wantState(t, p, 4, 0, 4) // the idle ones are closed, and nothing is revoked
		waiter := getting(t.Context(), p)
		items[0].Release()
		wantPending(t, waiter)
		wantState(t, p, 3, 0, 3)
		items[1].Release()
		item := wantItem(t, waiter)
		if item.Value() == items[0].Value() || s.opened != 6 {
			t.Errorf("%d opened, want the released one to be used again", s.opened)
		}
		items[2].Release()
		items[3].Release()
		item.Release()
		wantState(t, p, 3, 3, 0)
		p.Resize(1)
		wantState(t, p, 1, 1, 0)
		if st := p.Stats(); st.Capacity != 1 || st.Closes != 5 || st.Expired != 0 || s.most != 6 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPool_ResizeDownKeepsTheItemsUsedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 4})
		warm(t, p, 4) // released in the order 4, 3, 2, 1
		p.Resize(2)
		a, b := mustGet(t, p), mustGet(t, p)
		if a.Value().id != 1 || b.Value().id != 2 {
			t.Errorf("conns %d and %d are left, want 1 and 2", a.Value().id, b.Value().id)
		}
		a.Release()
		b.Release()
	})
}

// TestPool_ResizeUpServesWaiters: puddle#33.
func TestPool_ResizeUpServesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		a, b := getting(t.Context(), p), getting(t.Context(), p)
		p.Resize(2)
		wantItem(t, a).Release()
		wantItem(t, b).Release()
		item.Release()
		wantState(t, p, 2, 2, 0)
	})
}

func TestPool_ResizeToZeroPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Second)}
		p := newPool(t, s, pool.Config[*conn]{Size: 2})
		admitted := getting(t.Context(), p) // it has a permit, and its Open runs
		p.Resize(0)
		late := getting(t.Context(), p)
		time.Sleep(time.Second)
		item := wantItem(t, admitted) // shrinking revokes nothing
		wantPending(t, late)
		item.Release()
		wantState(t, p, 0, 0, 0)
		wantPending(t, late)
		p.Resize(1)
		time.Sleep(time.Second)
		wantItem(t, late).Release()
	})
}

// TestPool_ResizeDownWhileACallerHasAPermit: its permit is valid, also if Size no longer
// allows the item that it needs.
func TestPool_ResizeDownWhileACallerHasAPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Second)}
		p := newPool(t, s, pool.Config[*conn]{Size: 2, MaxOpening: 1})
		a, b := getting(t.Context(), p), getting(t.Context(), p) // the second waits for its Open
		p.Resize(0)
		time.Sleep(time.Second)
		item := wantItem(t, a)
		time.Sleep(time.Second)
		wantItem(t, b).Release()
		item.Release()
		wantState(t, p, 0, 0, 0)
	})
}

func TestPool_ResetReplacesAllItems(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 3})
		lent, idle := mustGet(t, p), mustGet(t, p)
		idle.Release()
		old := lent.Value()
		p.Reset()
		wantState(t, p, 1, 0, 1)
		if old.closed || !lent.Held() || lent.Value() != old {
			t.Error("an item in use is closed")
		}
		lent.Release()
		if !old.closed {
			t.Error("an item of before the Reset is not closed when it is returned")
		}
		wantState(t, p, 0, 0, 0)
		item := mustGet(t, p)
		if item.Value().id != 3 {
			t.Errorf("conn %d, want a new one", item.Value().id)
		}
		item.Release()
		wantState(t, p, 1, 1, 0)
	})
}

// TestPool_ResetWhileOpening: the server to which Open connects may be the one before a
// failover.
func TestPool_ResetWhileOpening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Second)}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, MaxLifetime: time.Hour})
		caller := getting(t.Context(), p)
		p.Reset()
		time.Sleep(time.Second)
		wantPending(t, caller)
		time.Sleep(time.Second)
		item := wantItem(t, caller)
		if item.Value().id != 2 {
			t.Errorf("conn %d, want the second", item.Value().id)
		}
		item.Release()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_CloseRejectsWaitersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			if n == 3 {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 3, MaxIdleTime: time.Minute})
		lent, idle := mustGet(t, p), mustGet(t, p)
		idleConn := idle.Value()
		opening := getting(t.Context(), p)
		wantPending(t, opening)
		waiter := getting(t.Context(), p)
		wantPending(t, waiter)
		waiting, cancel := context.WithCancel(t.Context())
		defer cancel()
		idle.Release() // passed to the one whose Open runs
		first := wantItem(t, opening)
		full := getting(waiting, p) // waits for the third Open, with a permit
		wantPending(t, full)
		first.Release()
		start := time.Now()
		third := wantItem(t, waiter)
		third.Release()
		wantItem(t, full).Release()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if !idleConn.closed {
			t.Error("an idle item is not closed")
		}
		for _, get := range []func(context.Context) (pool.Item[*conn], error){p.Get, p.TryGet} {
			_, err := get(t.Context())
			wantErr(t, err, sema.ErrClosed)
		}
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(context.Background()) }()
		synctest.Wait()
		if len(drained) > 0 {
			t.Error("Drain does not wait for an item in use")
		}
		lent.Release()
		wantErr(t, <-drained, nil)
		if time.Since(start) != 0 {
			t.Errorf("after %v", time.Since(start))
		}
		p.Close()
		p.Resume()
		_, err := p.Get(t.Context())
		wantErr(t, err, sema.ErrClosed)
		time.Sleep(time.Minute) // the last Open ends, and its item is closed
		synctest.Wait()
	})
}

func TestPool_CloseRejectsCallersThatHaveAPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{open: takes(time.Hour)}, pool.Config[*conn]{Size: 2, MaxOpening: 1})
		a, b, c := getting(t.Context(), p), getting(t.Context(), p), getting(t.Context(), p)
		p.Close()
		for _, caller := range []<-chan result{a, b, c} {
			wantFailed(t, caller, sema.ErrClosed)
		}
		wantState(t, p, 1, 0, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		wantState(t, p, 0, 0, 0)
	})
}

func TestPool_DrainWaitsForItemsInUse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		waiter := getting(t.Context(), p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, p.Drain(ctx), context.DeadlineExceeded)
		wantFailed(t, waiter, sema.ErrDraining)
		_, err := p.Get(t.Context())
		wantErr(t, err, sema.ErrDraining)
		drained := make(chan error, 1)
		go func() { drained <- p.Drain(t.Context()) }()
		synctest.Wait()
		item.Release()
		wantErr(t, <-drained, nil)
		wantState(t, p, 1, 1, 0)
		p.Resume()
		mustGet(t, p).Release()
	})
}

// TestPool_DrainRejectsCallersThatHaveAPermit: it does not wait for the Open of a server
// that hangs.
func TestPool_DrainRejectsCallersThatHaveAPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Hour)}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		pending := getting(t.Context(), p)
		wantPending(t, pending)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, p.Drain(ctx), nil)
		wantFailed(t, pending, sema.ErrDraining)
		p.Resume()
		item := mustGet(t, p) // of the Open that was in progress
		item.Release()
		if opened, _ := s.count(); opened != 1 {
			t.Errorf("opened %d times, want 1", opened)
		}
	})
}

// TestPool_ResizeDownClosesNoMoreThanSurplus: an item that is being closed is surplus that
// has been dealt with, however long that takes.
func TestPool_ResizeDownClosesNoMoreThanSurplus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := pool.New(pool.Config[int]{
			Size:  3,
			Open:  func(context.Context) (int, error) { return 0, nil },
			Close: func(int) { time.Sleep(time.Hour); closed++ },
		})
		var items []pool.Item[int]
		for range 3 {
			item, err := p.Get(t.Context())
			wantErr(t, err, nil)
			items = append(items, item)
		}
		p.Resize(2)
		for _, item := range items {
			go item.Release()
			synctest.Wait()
		}
		time.Sleep(2 * time.Hour)
		if st := p.Stats(); closed != 1 || st.Idle != 2 {
			t.Errorf("%d closed, %d idle; want 1, 2", closed, st.Idle)
		}
		p.Close()
	})
}

// TestPool_ResizeUpServesCallersThatHaveAPermit: they wait because the Open that hangs is
// all that Size allows.
func TestPool_ResizeUpServesCallersThatHaveAPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		ctx, cancel := context.WithCancel(t.Context())
		gone := getting(ctx, p)
		cancel()
		wantFailed(t, gone, context.Canceled)
		caller := getting(t.Context(), p)
		wantPending(t, caller)
		p.Resize(2)
		wantItem(t, caller).Release()
		time.Sleep(time.Hour)
	})
}

// TestPool_ResizeInAResize: the size of the pool is that of its semaphore, whichever of two
// calls ends last.
func TestPool_ResizeInAResize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var p *pool.Pool[*conn]
		observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventResized && e.Capacity == 2 {
				p.Resize(5)
			}
		}))
		p = newPool(t, &server{}, pool.Config[*conn]{Size: 1, Options: []sema.Option{observe}})
		p.Resize(2)
		warm(t, p, 5)
		wantState(t, p, 5, 5, 0)
	})
}

func TestPool_ConcurrentResizesAgree(t *testing.T) {
	t.Parallel()
	p := newPool(t, &server{}, pool.Config[*conn]{Size: 4})
	for range 200 {
		done := make(chan struct{}, 2)
		for _, size := range []int64{2, 5} {
			go func() { p.Resize(size); done <- struct{}{} }()
		}
		<-done
		<-done
		size := p.Stats().Capacity
		var items []pool.Item[*conn]
		for range size {
			items = append(items, mustGet(t, p))
		}
		for _, item := range items {
			item.Release()
		}
		if st := p.Stats(); st.Idle != size || st.Open != size {
			t.Fatalf("Size is %d, but %d items stay open", size, st.Open)
		}
	}
}

func TestPool_ErrorsAreThoseOfThePackageSema(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1, Options: []sema.Option{sema.Name("db")}})
		_, err := p.TryGet(t.Context())
		var fault *sema.Error
		if !errors.As(err, &fault) || err.Error() != `sema: "db": try: too few permits free: no item is idle: one is being opened (1 in use, 0 waiting)` {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		p.Close()
		_, err = p.Get(t.Context())
		if !errors.As(err, &fault) || fault.Name != "db" || sema.Reason(err) != "closed" {
			t.Errorf("%v", err)
		}
	})
}
