package pool_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

// Each test covers a bug of another pool. It fails on an implementation that has the bug.

// TestPastBug_Vitess20310ExpiredWaitersGetNoItem: connections were handed to callers whose
// context had ended, and 18,000 goroutines stalled.
func TestPastBug_Vitess20310ExpiredWaitersGetNoItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2})
		held := []pool.Item[*conn]{mustGet(t, p), mustGet(t, p)}
		const expired = 18_000
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range expired {
			wg.Go(func() {
				item, err := p.Get(ctx)
				if err != nil && err != context.DeadlineExceeded {
					t.Errorf("an expired waiter: %v", err)
				}
				item.Release() // it may have been served just before it expired
			})
		}
		synctest.Wait()
		live := getting(t.Context(), p) // behind all of them
		time.AfterFunc(time.Second, held[0].Release)
		time.Sleep(time.Second) // the release and the expiry are at the same instant
		wg.Wait()
		wantItem(t, live).Release()
		held[1].Release()
		wantState(t, p, 2, 2, 0)
	})
}

// TestPastBug_VitessItemOfAnExpiredCaller: an item that is opened for a caller at the instant
// at which its context ends goes to the next one.
func TestPastBug_VitessItemOfAnExpiredCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{open: takes(time.Second)}, pool.Config[*conn]{Size: 1})
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			expiring := getting(ctx, p)
			next := getting(t.Context(), p)
			time.Sleep(time.Second)
			synctest.Wait()
			if r := <-expiring; r.err == nil {
				r.item.Release()
			} else if r.err != context.DeadlineExceeded {
				t.Fatal(r.err)
			}
			wantItem(t, next).Discard()
			cancel()
		}
		wantState(t, p, 0, 0, 0)
	})
}

// TestPastBug_PuddleCloseWakesWaiters: waiters of a closed pool waited for the next release.
func TestPastBug_PuddleCloseWakesWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		waiter := getting(t.Context(), p)
		p.Close() // does not wait for the item
		wantFailed(t, waiter, sema.ErrClosed)
		item.Release()
		wantState(t, p, 0, 0, 0)
	})
}

// TestPastBug_Puddle33Resize: the size of a pool could not be changed.
func TestPastBug_Puddle33Resize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 2})
		a, b := mustGet(t, p), mustGet(t, p)
		p.Resize(1)
		a.Release()
		waiter := getting(t.Context(), p)
		wantPending(t, waiter) // b is all that there may be
		b.Release()
		wantItem(t, waiter).Release()
		wantState(t, p, 1, 1, 0)
	})
}

// TestPastBug_Go31708WaitersAreServedInOrder: database/sql chose a waiter at random, so that
// some waited for minutes.
func TestPastBug_Go31708WaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2})
		items := []pool.Item[*conn]{mustGet(t, p), mustGet(t, p)}
		const n = 200
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				item, err := p.Get(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				item.Release()
			})
			synctest.Wait()
		}
		items[0].Release()
		synctest.Wait()
		items[1].Release()
		wg.Wait()
		for i, got := range order {
			if got < i-1 || got > i+1 { // two are served at the same instant
				t.Fatalf("waiter %d was served as number %d", got, i)
			}
		}
	})
}

// TestPastBug_UnbufferedHandOffLosesNoWakeUp: a send with select and default loses the item,
// or the wake-up, if the waiter is not yet in its receive.
func TestPastBug_UnbufferedHandOffLosesNoWakeUp(t *testing.T) {
	t.Parallel()
	s := &server{}
	p := newPool(t, s, pool.Config[*conn]{Size: 1})
	for i := range 20_000 {
		item := mustGet(t, p)
		got := make(chan error, 1)
		go func() {
			next, err := p.Get(context.Background())
			next.Release()
			got <- err
		}()
		if i%10 == 0 {
			item.Discard() // a request waits for its Open then
		} else {
			item.Release()
		}
		select {
		case err := <-got:
			wantErr(t, err, nil)
		case <-time.After(time.Minute):
			t.Fatalf("the waiter missed the release: %v", p)
		}
	}
}

// TestPastBug_NetflixLimits234CheckThenActOvershoot: the count was checked and raised in two steps.
func TestPastBug_NetflixLimits234CheckThenActOvershoot(t *testing.T) {
	t.Parallel()
	const size = 3
	s := &server{}
	p := newPool(t, s, pool.Config[*conn]{Size: size, MinIdle: size, MaxLifetime: 5 * time.Millisecond})
	var used atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 500 {
				item, err := p.Get(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if n := used.Add(1); n > size {
					t.Errorf("%d items in use, Size is %d", n, size)
				}
				used.Add(-1)
				if i%4 == 0 {
					item.Discard()
				} else {
					item.Release()
				}
			}
		})
	}
	wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > size {
		t.Errorf("%d conns were open at once, Size is %d", s.most, size)
	}
}

// TestPastBug_FailsafePanicLeaksNoPermit: a panic of the function that ran under a permit kept it.
func TestPastBug_FailsafePanicLeaksNoPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		for range 3 {
			wantPanic(t, "fn", func() {
				p.Do(t.Context(), func(context.Context, pool.Item[*conn]) error { panic("fn") })
			})
		}
		wantState(t, p, 0, 0, 0)
		mustGet(t, p).Release()
	})
}

// TestPastBug_FailedOpenServesTheNextWaiter: in several pools the waiters behind a caller
// whose Open fails wait for a release that never comes.
func TestPastBug_FailedOpenServesTheNextWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rejected := errors.New("refused")
		s := &server{open: func(_ context.Context, n int) error {
			time.Sleep(time.Second)
			if n == 1 {
				return rejected
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		first, second := getting(t.Context(), p), getting(t.Context(), p)
		time.Sleep(time.Second)
		wantFailed(t, first, rejected)
		time.Sleep(time.Second)
		wantItem(t, second).Release()
	})
}
