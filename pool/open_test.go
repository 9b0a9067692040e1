package pool_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

// endGoroutine does what t.FailNow does in code that is called by the pool.
func endGoroutine() { runtime.Goexit() }

func TestPool_CallerLeavesWhileOpenRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Minute)}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		cause := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		caller := getting(ctx, p)
		cancel(cause)
		wantFailed(t, caller, cause)
		wantState(t, p, 1, 0, 0) // its permit is free
		next := getting(t.Context(), p)
		time.Sleep(time.Minute)
		item := wantItem(t, next) // it gets what was opened for the first one
		if opened, _ := s.count(); opened != 1 {
			t.Errorf("%d opened, want 1", opened)
		}
		item.Release()
	})
}

func TestPool_AbandonedOpenBecomesIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPool(t, &server{open: takes(time.Minute)}, pool.Config[*conn]{Size: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Get(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		wantState(t, p, 1, 1, 0)
	})
}

type valueKey struct{}

func TestPool_OpenGetsValuesAndOutlivesCancellation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(ctx context.Context, _ int) error {
			time.Sleep(time.Second)
			if ctx.Value(valueKey{}) != "trace" || ctx.Err() != nil {
				t.Errorf("value %v, error %v", ctx.Value(valueKey{}), ctx.Err())
			}
			if _, ok := ctx.Deadline(); ok {
				t.Error("the context of Open has the caller's deadline")
			}
			return ctx.Err()
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "trace"), time.Millisecond)
		defer cancel()
		_, err := p.Get(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_OpenTimeoutEndsOpenAndCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slow atomic.Bool
		slow.Store(true)
		p := newPool(t, &server{open: func(ctx context.Context, _ int) error {
			if !slow.Load() {
				return nil
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}}, pool.Config[*conn]{Size: 1, OpenTimeout: time.Second, Check: func(ctx context.Context, _ *conn) error { <-ctx.Done(); return ctx.Err() }})
		start := time.Now()
		_, err := p.Get(t.Context())
		wantErr(t, err, context.DeadlineExceeded)
		if time.Since(start) != time.Second {
			t.Errorf("after %v", time.Since(start))
		}
		slow.Store(false)
		mustGet(t, p).Release()
		mustGet(t, p).Release() // its Check fails after a second, and it is replaced
		if time.Since(start) != 2*time.Second || p.Stats().CheckErrors != 1 {
			t.Errorf("after %v: %+v", time.Since(start), p.Stats())
		}
	})
}

func TestPool_FailedOpenReturnsItsPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rejected := errors.New("connection refused")
		s := &server{open: func(_ context.Context, n int) error {
			if n <= 3 {
				return rejected
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1, Options: []sema.Option{sema.Name("db")}})
		for range 3 {
			_, err := p.Get(t.Context())
			wantErr(t, err, rejected)
			var fault *sema.Error
			if !errors.As(err, &fault) || fault.Name != "db" || fault.Capacity != 1 || fault.InUse != 1 || fault.Op != "open" {
				t.Errorf("%#v", err)
			}
			if text := err.Error(); text != `sema: "db": open: connection refused: 0 of 1 items open` || sema.Reason(err) != "open" || sema.Hint(err) == "" {
				t.Errorf("%s (%s)", text, sema.Reason(err))
			}
			wantState(t, p, 0, 0, 0)
		}
		mustGet(t, p).Release()
		if st := p.Stats(); st.OpenErrors != 3 || st.Opens != 1 {
			t.Errorf("%+v", st.Totals)
		}
	})
}

// TestPool_HerdOfFailingOpens: each caller gets an error, none waits for ever, and the pool
// works as soon as Open does.
func TestPool_HerdOfFailingOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &server{open: func(context.Context, int) error {
			time.Sleep(time.Second)
			if down.Load() {
				return errors.New("refused")
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 8, MaxOpening: 2})
		var herd []<-chan result
		for range 100 {
			herd = append(herd, getting(t.Context(), p))
		}
		time.Sleep(50 * time.Second)
		for _, c := range herd {
			synctest.Wait()
			if len(c) == 0 {
				t.Fatal("a caller still waits")
			}
			if r := <-c; r.err == nil {
				t.Fatal("an item of a server that is down")
			}
		}
		wantState(t, p, 0, 0, 0)
		if s.wide != 2 || p.Stats().OpenErrors != 100 {
			t.Errorf("%d Opens at once, want 2; %+v", s.wide, p.Stats().Totals)
		}
		down.Store(false)
		mustGet(t, p).Release()
	})
}

func TestPool_MaxOpeningBoundsOpens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: takes(time.Second)}
		p := newPool(t, s, pool.Config[*conn]{Size: 10, MaxOpening: 3})
		var callers []<-chan result
		for range 10 {
			callers = append(callers, getting(t.Context(), p))
		}
		start := time.Now()
		for _, c := range callers {
			r := <-c
			wantErr(t, r.err, nil)
			defer r.item.Release()
		}
		if s.wide != 3 || time.Since(start) != 4*time.Second {
			t.Errorf("%d at once, after %v", s.wide, time.Since(start))
		}
	})
}

// TestPool_ReleasedItemServesACallerWhoseOpenRuns: a slow Open does not delay a caller
// beyond the next release.
func TestPool_ReleasedItemServesACallerWhoseOpenRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			if n > 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 2})
		first := mustGet(t, p)
		caller := getting(t.Context(), p)
		wantPending(t, caller)
		if p.Stats().Pending != 1 {
			t.Errorf("%+v", p.Stats())
		}
		first.Release()
		item := wantItem(t, caller)
		if item.Value().id != 1 {
			t.Errorf("conn %d, want 1", item.Value().id)
		}
		// The Open still runs, and counts: a third caller waits for it, or for a release.
		third := getting(t.Context(), p)
		wantPending(t, third)
		if st := p.Stats(); st.Open != 2 || st.Opening != 1 || s.opened != 2 {
			t.Errorf("%+v, %d opened", st, s.opened)
		}
		time.Sleep(time.Hour)
		wantItem(t, third).Release()
		item.Release()
		wantState(t, p, 2, 2, 0)
	})
}

func TestPool_PanicInOpenReachesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cause := errors.New("no such driver")
		s := &server{open: func(_ context.Context, n int) error {
			if n == 1 {
				panic(cause)
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		reason := wantPanic(t, "Open", func() { p.Get(t.Context()) })
		if err, ok := reason.(error); !ok || !errors.Is(err, cause) || !strings.Contains(err.Error(), "open_test.go") {
			t.Errorf("panic %v, want the cause and the stack of Open", reason)
		}
		wantState(t, p, 0, 0, 0)
		gate := sema.New(1)
		s.opened = 0
		wantPanic(t, "Open", func() { p.GetVia(t.Context(), gate, 1) })
		if gate.Stats().InUse != 0 {
			t.Error("the permit of the gate is lost")
		}
		mustGet(t, p).Release()
		wantState(t, p, 1, 1, 0)
	})
}

func TestPool_OpenThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			if n <= 2 {
				endGoroutine()
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 1})
		if _, err := p.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Errorf("%v", err)
		}
		wantState(t, p, 0, 0, 0)
		_, err := p.TryGet(t.Context()) // no caller waits for this Open
		wantErr(t, err, sema.ErrFull)
		synctest.Wait()
		wantState(t, p, 0, 0, 0)
		mustGet(t, p).Release()
	})
}

func TestPool_PanicInCloseLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := pool.New(pool.Config[int]{Size: 3, Open: func(context.Context) (int, error) { return 1, nil }, Close: func(int) { panic("close") }})
		item, err := p.Get(t.Context())
		wantErr(t, err, nil)
		wantPanic(t, "Discard", item.Discard)
		if st := p.Stats(); st.Open != 0 || st.InUse != 0 || st.Closes != 1 {
			t.Errorf("%+v", st)
		}
		gate := sema.New(1)
		item, err = p.GetVia(t.Context(), gate, 1)
		wantErr(t, err, nil)
		wantPanic(t, "Discard", item.Discard)
		if st := p.Stats(); st.Open != 0 || st.InUse != 0 || gate.Stats().InUse != 0 {
			t.Errorf("%+v, %+v", st, gate.Stats())
		}
		var items []pool.Item[int]
		for range 3 {
			item, err := p.Get(t.Context())
			wantErr(t, err, nil)
			items = append(items, item)
		}
		for _, item := range items {
			item.Release()
		}
		wantPanic(t, "Reset", p.Reset)
		if st := p.Stats(); st.Open != 0 || st.Idle != 0 || st.Closes != 5 {
			t.Errorf("%+v", st)
		}
		p.Close()
	})
}

// TestPool_HungOpenDelaysNoOtherCaller: an Open that was abandoned may never return. Others
// do not rely on it while Size allows another one.
func TestPool_HungOpenDelaysNoOtherCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := &server{open: func(_ context.Context, n int) error {
			if n == 1 {
				<-hang
			}
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Get(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		for range 3 {
			wantItem(t, getting(t.Context(), p)).Release()
		}
		wantState(t, p, 2, 1, 0)
		close(hang)
		synctest.Wait()
		wantState(t, p, 2, 2, 0)
	})
}

// TestPool_FirstCallerGetsTheFirstItem: the callers exchange what is in progress for them,
// and nothing more is opened.
func TestPool_FirstCallerGetsTheFirstItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &server{open: func(_ context.Context, n int) error {
			time.Sleep([]time.Duration{0, 10 * time.Second, time.Second, 5 * time.Second}[n])
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 10})
		a, b, c := getting(t.Context(), p), getting(t.Context(), p), getting(t.Context(), p)
		for i, wait := range []struct {
			caller <-chan result
			after  time.Duration
			id     int
		}{{a, time.Second, 2}, {b, 4 * time.Second, 3}, {c, 5 * time.Second, 1}} {
			wantPending(t, wait.caller)
			time.Sleep(wait.after)
			item := wantItem(t, wait.caller)
			if item.Value().id != wait.id {
				t.Errorf("caller %d got conn %d, want %d", i, item.Value().id, wait.id)
			}
			defer item.Release()
		}
		if opened, _ := s.count(); opened != 3 {
			t.Errorf("%d opened, want 3", opened)
		}
	})
}

// TestPool_ErrorGoesToItsCaller: the error of a later caller's Open is not that of the
// first, and that of an abandoned Open is dropped.
func TestPool_ErrorGoesToItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failed := errors.New("failed")
		s := &server{open: func(_ context.Context, n int) error {
			if n > 1 {
				time.Sleep(time.Second)
				return failed
			}
			time.Sleep(10 * time.Second)
			return nil
		}}
		p := newPool(t, s, pool.Config[*conn]{Size: 3})
		first, second := getting(t.Context(), p), getting(t.Context(), p)
		ctx, cancel := context.WithCancel(t.Context())
		third := getting(ctx, p)
		cancel()
		wantFailed(t, third, context.Canceled)
		time.Sleep(time.Second)
		wantFailed(t, second, failed)
		wantPending(t, first)
		time.Sleep(9 * time.Second)
		wantItem(t, first).Release()
		if st := p.Stats(); st.OpenErrors != 2 || st.Opens != 1 {
			t.Errorf("%+v", st.Totals)
		}
	})
}

// TestPool_PanicThatNoCallerWaitsFor: it ends the program, as a panic of any goroutine
// does.
func TestPool_PanicThatNoCallerWaitsFor(t *testing.T) {
	const variable = "POOL_TEST_PANICS"
	if os.Getenv(variable) != "" {
		s := &server{t: t, open: func(context.Context, int) error { panic("no driver") }}
		p := pool.New(pool.Config[*conn]{Size: 1, Open: s.Open})
		p.TryGet(t.Context())
		select {}
	}
	t.Parallel()
	test := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	test.Env = append(os.Environ(), variable+"=1")
	out, err := test.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no driver") || !strings.Contains(string(out), "open_test.go") {
		t.Errorf("%v, want a panic with the stack of Open:\n%s", err, out)
	}
}
