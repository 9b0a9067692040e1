package pool_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

func TestPool_CheckFindsItemsThatBrokeWhileIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 3, Check: s.Check, CheckAfter: time.Minute})
		var items []pool.Item[*conn]
		for range 3 {
			items = append(items, mustGet(t, p))
		}
		for _, item := range items[:2] {
			item.Value().broken = true // killed by the server
		}
		for _, item := range items {
			item.Release()
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		a, b := mustGet(t, p), mustGet(t, p)
		if a.Value().id != 3 || b.Value().id != 4 {
			t.Errorf("conns %d and %d, want 3, which is healthy, and a new one", a.Value().id, b.Value().id)
		}
		if st := p.Stats(); st.CheckErrors != 2 || st.Closes != 2 || st.Opens != 4 {
			t.Errorf("%+v", st.Totals)
		}
		a.Release()
		b.Release()
		wantState(t, p, 2, 2, 0)
	})
}

// TestPool_CheckAfterIsNeverLate: an item that was idle for CheckAfter or longer is always
// checked, and one that was idle for three quarters of it or less never is.
func TestPool_CheckAfterIsNeverLate(t *testing.T) {
	for _, after := range []time.Duration{5500 * time.Microsecond, 80 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &server{}
				p := newPool(t, s, pool.Config[*conn]{Size: 1, Check: s.Check, CheckAfter: after})
				mustGet(t, p).Release()
				for i := range 200 {
					time.Sleep(time.Duration(i) * after / 777) // at all phases of the rounds
					idle := time.Duration(i) * after / 100
					mustGet(t, p).Release()
					time.Sleep(idle)
					synctest.Wait()
					before := p.Stats().Checks
					mustGet(t, p).Release()
					checked := p.Stats().Checks > before
					if idle >= after && !checked {
						t.Fatalf("idle for %v, and not checked", idle)
					}
					if idle <= after*3/4 && checked && after > 8*time.Millisecond { // a round is at least 1ms
						t.Fatalf("idle for %v, and checked", idle)
					}
				}
			})
		})
	}
}

func TestPool_CheckAfterZeroChecksEachIdleItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, Check: s.Check})
		for i := range 5 {
			item := mustGet(t, p)
			if checks := p.Stats().Checks; checks != int64(i) {
				t.Errorf("%d checks, want %d: all but the one that was just opened", checks, i)
			}
			item.Release()
		}
		_, err := p.TryGet(t.Context())
		wantErr(t, err, sema.ErrFull)
		if !strings.Contains(err.Error(), "being checked") {
			t.Error(err)
		}
		synctest.Wait()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_CallerLeavesWhileCheckRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1, Check: func(ctx context.Context, _ *conn) error { time.Sleep(time.Minute); return ctx.Err() }})
		mustGet(t, p).Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := p.Get(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if time.Since(start) != time.Second {
			t.Errorf("after %v", time.Since(start))
		}
		wantState(t, p, 1, 0, 0)
		time.Sleep(time.Minute)
		wantState(t, p, 1, 1, 0) // it is healthy
	})
}

func TestPool_PanicInCheckReachesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1, Check: func(context.Context, *conn) error { panic("check") }})
		mustGet(t, p).Release()
		wantPanic(t, "Check", func() { p.Get(t.Context()) })
		synctest.Wait()
		wantState(t, p, 0, 0, 0)
		if st := p.Stats(); st.CheckErrors != 1 {
			t.Errorf("%+v", st)
		}
		mustGet(t, p).Release()
	})
}

func TestPool_MaxIdleTimeClosesIdleItems(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 5, MaxIdleTime: 8 * time.Minute})
		busy := mustGet(t, p)
		idle := mustGet(t, p)
		time.Sleep(time.Hour) // items in use do not expire
		idle.Release()
		time.Sleep(8*time.Minute - time.Second)
		wantState(t, p, 2, 1, 1)
		time.Sleep(2*time.Minute + 2*time.Second)
		synctest.Wait()
		wantState(t, p, 1, 0, 1)
		if st := p.Stats(); st.Expired != 1 || st.Closes != 1 {
			t.Errorf("%+v", st.Totals)
		}
		busy.Release()
	})
}

// TestPool_IdleTimeStartsWhenAnItemBecomesIdle: also of an item that no caller has used.
func TestPool_IdleTimeStartsWhenAnItemBecomesIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2, MaxIdleTime: time.Minute})
		item := mustGet(t, p)
		time.Sleep(time.Hour)
		_, err := p.TryGet(t.Context()) // opens one
		wantErr(t, err, sema.ErrFull)
		time.Sleep(45 * time.Second)
		wantState(t, p, 2, 1, 1)
		item.Release()
	})
}

// TestPool_SurplusExpires: the item that is used stays, and those below it expire, since
// the one used last is lent first.
func TestPool_SurplusExpires(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 10, MaxIdleTime: time.Minute})
		var items []pool.Item[*conn]
		for range 10 {
			items = append(items, mustGet(t, p))
		}
		for _, item := range items {
			item.Release()
		}
		for range 90 {
			mustGet(t, p).Release()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_MaxLifetimeIsJittered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 100
		p := newPool(t, &server{}, pool.Config[*conn]{Size: n, MaxLifetime: time.Hour})
		var items []pool.Item[*conn]
		for range n {
			items = append(items, mustGet(t, p))
		}
		used := items[0]
		for _, item := range items[1:] {
			item.Release()
		}
		time.Sleep(54*time.Minute - time.Second)
		wantState(t, p, n, n-1, 1)
		var most, before int64 = 0, n
		for range 61 { // up to the hour, and a round
			time.Sleep(6 * time.Second)
			synctest.Wait()
			open := p.Stats().Open
			most, before = max(most, before-open), open
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		wantState(t, p, 1, 0, 1) // the one in use is left
		if most > n/4 {
			t.Errorf("%d of %d items were closed in a round", most, n)
		}
		used.Release() // and closed when it is returned
		wantState(t, p, 0, 0, 0)
		if st := p.Stats(); st.Expired != n {
			t.Errorf("%+v", st.Totals)
		}
	})
}

func TestPool_OpenThatTakesLongerThanMaxLifetime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Minute)}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, MaxLifetime: time.Second})
		mustGet(t, p).Release()
		if s.opened != 1 {
			t.Errorf("%d opened: the lifetime counts from the end of Open", s.opened)
		}
	})
}

func TestPool_MinIdleIsFilledInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Second)}
		p := newPool(t, s, pool.Config[*conn]{Size: 5, MinIdle: 3, MaxIdleTime: time.Minute, MaxOpening: 2})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantState(t, p, 3, 3, 0)
		if s.wide != 2 {
			t.Errorf("%d Opens at once, want 2", s.wide)
		}
		time.Sleep(time.Hour)
		wantState(t, p, 3, 3, 0) // MinIdle items do not expire
		var items []pool.Item[*conn]
		for range 3 {
			items = append(items, mustGet(t, p))
		}
		time.Sleep(3 * time.Second)
		wantState(t, p, 5, 2, 3) // Size bounds what is filled
		for _, item := range items {
			item.Release()
		}
		wantState(t, p, 5, 5, 0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantState(t, p, 3, 3, 0) // surplus expires
	})
}

func TestPool_MinIdleBacksOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var attempts []time.Time
		var down atomic.Bool
		down.Store(true)
		s := &server{open: func(context.Context, int) error {
			attempts = append(attempts, time.Now())
			if down.Load() {
				return errors.New("refused")
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, MinIdle: 1})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := len(attempts); n < 20 || n > 50 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		var gaps []time.Duration
		for i := range attempts[1:] {
			gaps = append(gaps, attempts[i+1].Sub(attempts[i]))
		}
		if longest := slices.Max(gaps); gaps[0] > 2*time.Second || longest < 15*time.Second || longest > 32*time.Second {
			t.Errorf("gaps %v", gaps)
		}
		wantState(t, p, 0, 0, 0)
		down.Store(false)
		time.Sleep(time.Minute)
		wantState(t, p, 1, 1, 0)
		mustGet(t, p).Discard()
		time.Sleep(2 * time.Second) // no back-off is left
		wantState(t, p, 1, 1, 0)
		down.Store(true)
		failed := p.Stats().OpenErrors
		mustGet(t, p).Discard()
		for p.Stats().OpenErrors == failed {
			time.Sleep(100 * time.Millisecond)
		}
		down.Store(false)
		time.Sleep(2 * time.Second) // it starts with the shortest again
		wantState(t, p, 1, 1, 0)
	})
}

// TestPool_CallersDoNotWaitForTheBackOff: the back-off of the background is not theirs.
func TestPool_CallersDoNotWaitForTheBackOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			if n < 10 {
				return errors.New("refused")
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, MinIdle: 1})
		time.Sleep(3 * time.Second)
		start := time.Now()
		for {
			item, err := p.Get(t.Context())
			if err == nil {
				item.Release()
				break
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("after %v", time.Since(start))
		}
	})
}

// TestPool_JanitorExistsWhileItIsNeeded: a bubble ends only if no goroutine is left in it.
func TestPool_JanitorExistsWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(t *testing.T, p *pool.Pool[*conn]){
		"no item was opened": func(*testing.T, *pool.Pool[*conn]) {},
		"all items have expired": func(t *testing.T, p *pool.Pool[*conn]) {
			for range 3 {
				mustGet(t, p).Release()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				wantState(t, p, 0, 0, 0)
			}
		},
		"all items were discarded": func(t *testing.T, p *pool.Pool[*conn]) {
			mustGet(t, p).Discard()
			time.Sleep(time.Minute)
		},
		"the pool was closed while an item is in use": func(t *testing.T, p *pool.Pool[*conn]) {
			item := mustGet(t, p)
			p.Close()
			t.Cleanup(item.Release) // after the janitor has ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{t: t}
				use(t, pool.New(pool.Config[*conn]{Size: 1, MaxIdleTime: time.Minute, Open: s.Open, Close: s.Close}))
			})
		})
	}
}

// TestPool_CloseThatHangsDoesNotStopTheClock: an idle item is checked even if the Close of
// another never returns.
func TestPool_CloseThatHangsDoesNotStopTheClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		var checks int
		p := pool.New(pool.Config[int]{
			Size: 2, MaxIdleTime: time.Minute, MinIdle: 1, CheckAfter: 10 * time.Second,
			Open: func(context.Context) (int, error) { return 0, nil }, Close: func(int) { <-hang },
			Check: func(context.Context, int) error { checks++; return nil },
		})
		synctest.Wait()
		a, _ := p.Get(t.Context())
		b, err := p.Get(t.Context())
		wantErr(t, err, nil)
		a.Release()
		b.Release()
		time.Sleep(2 * time.Minute)
		if st := p.Stats(); st.Closing != 1 || st.Idle != 1 {
			t.Errorf("%+v", st)
		}
		for range 2 {
			item, err := p.Get(t.Context())
			wantErr(t, err, nil)
			item.Release()
			time.Sleep(time.Minute)
		}
		if checks != 2 {
			t.Errorf("%d checks, want 2: an item was lent after a minute without one", checks)
		}
		close(hang)
		p.Close()
	})
}
