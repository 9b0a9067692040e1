package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

func TestPool_LendsTheItemUsedLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 3})
		a, b := mustGet(t, p), mustGet(t, p)
		wantState(t, p, 2, 0, 2)
		b.Release()
		a.Release()
		wantState(t, p, 2, 2, 0)
		c := mustGet(t, p)
		if c.Value().id != 1 {
			t.Errorf("conn %d is lent, want 1, which was released last", c.Value().id)
		}
		c.Release()
		if opened, _ := s.count(); opened != 2 {
			t.Errorf("%d conns opened, want 2", opened)
		}
	})
}

func TestPool_ServesWaitersInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		var waiters []<-chan result
		for range 5 {
			waiters = append(waiters, getting(t.Context(), p))
		}
		for i, w := range waiters {
			item.Release()
			item = wantItem(t, w)
			for _, later := range waiters[i+1:] {
				wantPending(t, later)
			}
		}
		item.Release()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_TryGetNeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{open: takes(time.Second)}, pool.Config[*conn]{Size: 2})
		for range 3 { // the first starts an Open, and the others know of it
			_, err := p.TryGet(t.Context())
			wantErr(t, err, sema.ErrFull)
			wantState(t, p, 1, 0, 0)
		}
		time.Sleep(2 * time.Second)
		item, err := p.TryGet(t.Context())
		wantErr(t, err, nil)
		other := mustGet(t, p)
		if _, err := p.TryGet(t.Context()); !errors.Is(err, sema.ErrFull) {
			t.Errorf("%v, want ErrFull: all permits are held", err)
		}
		item.Release()
		waiter := getting(t.Context(), p)
		wantItem(t, waiter).Release()
		other.Release()
		ended, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("cause")
		cancel(cause)
		_, err = p.TryGet(ended)
		wantErr(t, err, cause)
		wantState(t, p, 2, 2, 0)
	})
}

func TestPool_TryGetDoesNotOvertake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{open: takes(time.Second)}, pool.Config[*conn]{Size: 3, MaxOpening: 1})
		first := getting(t.Context(), p)
		_, err := p.TryGet(t.Context())
		wantErr(t, err, sema.ErrFull)
		time.Sleep(time.Second)
		wantItem(t, first).Release()
		if opened := p.Stats().Opens; opened != 1 {
			t.Errorf("%d opened, want 1", opened)
		}
	})
}

func TestPool_DoReleasesOrDiscards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		var seen *conn
		err := p.Do(t.Context(), func(ctx context.Context, item pool.Item[*conn]) error {
			seen = item.Value()
			if held := sema.Held(ctx); len(held) != 1 || !held[0].Held() {
				t.Error("the context of fn does not carry the permit")
			}
			return nil
		})
		if err != nil || seen == nil {
			t.Fatal(err)
		}
		wantState(t, p, 1, 1, 0)
		failed := errors.New("failed")
		wantErr(t, p.Do(t.Context(), func(context.Context, pool.Item[*conn]) error { return failed }), failed)
		wantState(t, p, 1, 1, 0)
		wantErr(t, p.Do(t.Context(), func(_ context.Context, item pool.Item[*conn]) error { item.Discard(); return nil }), nil)
		wantState(t, p, 0, 0, 0)
		reason := wantPanic(t, "fn", func() {
			p.Do(t.Context(), func(context.Context, pool.Item[*conn]) error { panic("in a transaction") })
		})
		if reason != "in a transaction" {
			t.Errorf("panic %v", reason)
		}
		wantState(t, p, 0, 0, 0) // its state is unknown
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Do(t.Context(), func(context.Context, pool.Item[*conn]) error { endGoroutine(); return nil })
		}()
		<-done
		wantState(t, p, 0, 0, 0)
		wantErr(t, p.Do(noContext, nil), sema.ErrInvalid)
	})
}

// noContext is what a careless caller passes.
var noContext context.Context

func TestPool_RejectsANilContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		gate := sema.New(1)
		for name, get := range map[string]func() (pool.Item[*conn], error){
			"Get": func() (pool.Item[*conn], error) { return p.Get(noContext) }, "TryGet": func() (pool.Item[*conn], error) { return p.TryGet(noContext) },
			"GetVia":          func() (pool.Item[*conn], error) { return p.GetVia(noContext, gate, 1) },
			"GetVia, no gate": func() (pool.Item[*conn], error) { return p.GetVia(t.Context(), nil, 1) },
			"GetVia of 0":     func() (pool.Item[*conn], error) { return p.GetVia(t.Context(), gate, 0) },
			"GetVia of -1":    func() (pool.Item[*conn], error) { return p.GetVia(t.Context(), gate, -1) },
		} {
			if _, err := get(); !errors.Is(err, sema.ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", name, err)
			}
		}
		wantErr(t, p.Drain(noContext), sema.ErrInvalid)
		mustGet(t, p).Release() // it does not drain
	})
}

func TestPool_OptionsAreThoseOfItsSemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var kinds []string
		observer := sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Name+" "+e.Kind.String())
		})
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1, Options: []sema.Option{
			sema.Name("db"), sema.MaxWait(time.Second), sema.MaxWaiters(1), sema.Observe(observer), sema.Diagnose(sema.DiagnoseFull)}})
		item := mustGet(t, p)
		if holders := sema.Holders(); !hasHolder(holders, "db", "pool/helpers_test.go") {
			t.Errorf("%+v", holders)
		}
		waiter := getting(t.Context(), p)
		_, err := p.Get(t.Context())
		wantErr(t, err, sema.ErrQueueFull)
		time.Sleep(2 * time.Second)
		r := <-waiter
		wantErr(t, r.err, sema.ErrTimeout)
		if text := r.err.Error(); !strings.Contains(text, `"db"`) || !strings.Contains(text, "1 in use") || sema.Hint(r.err) == "" {
			t.Error(text)
		}
		item.Release()
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"db acquired", "db queued", "db rejected", "db timed out", "db released"} {
			if !strings.Contains(strings.Join(kinds, ", "), want) {
				t.Errorf("no event %q in %v", want, kinds)
			}
		}
		if p.Name() != "db" {
			t.Error(p.Name())
		}
	})
}

func hasHolder(holders []sema.Holder, name, site string) bool {
	for _, h := range holders {
		if h.Name == name && strings.HasPrefix(h.Site, site) {
			return true
		}
	}
	return false
}

// TestPool_ObserverPanicsLoseNothing: an observer is code of the user, too.
func TestPool_ObserverPanicsLoseNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		kind := sema.EventKind(0)
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, Options: []sema.Option{
			sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				if e.Kind == kind {
					panic("observer")
				}
			}))}})
		kind = sema.EventAcquired
		wantPanic(t, "acquired", func() { p.Get(t.Context()) })
		wantPanic(t, "acquired", func() { p.TryGet(t.Context()) })
		gate := sema.New(1)
		wantPanic(t, "acquired", func() { p.GetVia(t.Context(), gate, 1) })
		if gate.Stats().InUse != 0 {
			t.Error("the permit of the gate is lost")
		}
		kind = 0
		item := mustGet(t, p)
		kind = sema.EventReleased
		wantPanic(t, "released", item.Release)
		kind = 0
		wantState(t, p, 1, 1, 0)
		item = mustGet(t, p)
		kind = sema.EventReleased
		wantPanic(t, "released", item.Discard)
		kind = 0
		wantState(t, p, 0, 0, 0)
	})
}

func TestPool_PrintsItsState(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 2, Options: []sema.Option{sema.Name("db")}})
		item := mustGet(t, p)
		want := `pool "db": 1 of 2 open, 0 idle, 0 waiting`
		if p.String() != want || fmt.Sprintf("%#v", p) != want || p.LogValue().String() != want {
			t.Errorf("%v, want %s", p, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, p.Drain(ctx), context.Canceled)
		if !strings.HasSuffix(p.String(), ", draining") {
			t.Error(p)
		}
		item.Release()
		p.Close()
		if !strings.HasSuffix(p.String(), ", closed") {
			t.Error(p)
		}
	})
}

func TestNew_RejectsBadConfigurations(t *testing.T) {
	t.Parallel()
	open := func(context.Context) (int, error) { return 0, nil }
	for what, c := range map[string]pool.Config[int]{
		"no Open": {Size: 1}, "no bound": {Open: open}, "a negative Size": {Open: open, Size: -1, Gate: sema.New(1)},
		"a negative MinIdle": {Open: open, Size: 1, MinIdle: -1}, "a negative MaxOpening": {Open: open, Size: 1, MaxOpening: -1},
		"a negative CheckAfter": {Open: open, Size: 1, CheckAfter: -1}, "a negative MaxIdleTime": {Open: open, Size: 1, MaxIdleTime: -1},
		"a negative MaxLifetime": {Open: open, Size: 1, MaxLifetime: -1}, "a negative OpenTimeout": {Open: open, Size: 1, OpenTimeout: -1},
	} {
		wantPanic(t, what, func() { pool.New(c) })
	}
	p := pool.New(pool.Config[int]{Open: open, Size: math.MaxInt64}) // unlimited, without Close
	item, err := p.Get(t.Context())
	wantErr(t, err, nil)
	item.Discard()
	wantPanic(t, "a negative Resize", func() { p.Resize(-1) })
	p.Close()
}

// TestPool_PermitReleasedWithoutItsItem: the item is still in use, and no later caller
// waits for ever.
func TestPool_PermitReleasedWithoutItsItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{}, pool.Config[*conn]{Size: 1})
		item := mustGet(t, p)
		item.Permit().Release()
		other := wantItem(t, getting(t.Context(), p))
		if other.Value() == item.Value() {
			t.Error("an item is lent twice")
		}
		item.Release() // closed: it is surplus
		wantState(t, p, 1, 0, 1)
		other.Release()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_LendsMoreThanItsSlotsOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 1000
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: n})
		seen := map[*conn]bool{}
		for range 3 {
			var items []pool.Item[*conn]
			for range n {
				items = append(items, mustGet(t, p))
				seen[items[len(items)-1].Value()] = true
			}
			for _, item := range items {
				item.Release()
			}
			synctest.Wait()
		}
		if len(seen) != n || s.opened != n || p.Stats().Acquired != 3*n {
			t.Errorf("%d conns, %d opened, want %d", len(seen), s.opened, n)
		}
	})
}

func TestPool_LongestDurations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: 2, Check: s.Check, CheckAfter: time.Hour, MaxIdleTime: math.MaxInt64, MaxLifetime: math.MaxInt64})
		mustGet(t, p).Release()
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		wantState(t, p, 1, 1, 0)
		mustGet(t, p).Release()
		if st := p.Stats(); st.Opens != 1 || st.Checks != 1 {
			t.Errorf("%+v", st.Totals)
		}
	})
}
