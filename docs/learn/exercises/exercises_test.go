package exercises

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/sematest"
)

// reportUnsolved fails a test whose exercise has no solution yet, so that the other tests run.
func reportUnsolved(t *testing.T) {
	t.Helper()
	switch r := recover().(type) {
	case nil:
	case unsolved:
		t.Fatalf("%s is not solved yet", string(r))
	default:
		panic(r)
	}
}

func TestCounting_BoundsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer reportUnsolved(t)
		s := NewCounting(2)
		if n := acquireAll(s); n != 2 {
			t.Fatalf("%d permits, want 2", n)
		}
		done := false
		go func() { done = s.Acquire(t.Context()) == nil }()
		synctest.Wait()
		if done {
			t.Error("a third permit was granted")
		}
		s.Release()
		synctest.Wait()
		if !done {
			t.Error("the waiter sleeps on")
		}
		s.Release()
		s.Release()
		defer func() {
			if recover() == nil {
				t.Error("a release of nothing did not panic")
			}
		}()
		s.Release()
	})
}

// acquireAll acquires what is free, up to 10 permits, and returns how many that were.
func acquireAll(s Counting) (n int) {
	for n < 10 && s.TryAcquire() {
		n++
	}
	return n
}

func TestCounting_LosesNothingToCancels(t *testing.T) {
	defer reportUnsolved(t)
	s := NewCounting(2)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				if s.Acquire(ctx) == nil {
					s.Release()
				}
				cancel()
				if err := s.Acquire(ctx); err == nil {
					t.Error("an ended context has acquired")
					s.Release()
				}
			}
		})
	}
	all.Wait()
	if n := acquireAll(s); n != 2 {
		t.Errorf("%d permits, want 2", n)
	}
}

func TestPool_ReusesAndBounds(t *testing.T) {
	defer reportUnsolved(t)
	var opened atomic.Int64
	fail := false
	p := NewPool(2, func() (*Conn, error) {
		if fail {
			return nil, errors.New("open failed")
		}
		return &Conn{ID: int(opened.Add(1))}, nil
	})
	end, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a test that would hang
	defer cancel()
	get := func() *Conn {
		t.Helper()
		c, err := p.Get(end)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := get(), get()
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := p.Get(short); err == nil {
		t.Error("a third connection was lent")
	}
	p.Put(one)
	p.Put(two)
	p.Put(two) // a mistake that must not matter
	if c := get(); c != two {
		t.Errorf("lent %d, want the one that was returned last", c.ID)
	}
	if c := get(); c != one {
		t.Errorf("lent %d, want the other one", c.ID)
	}
	two.Broken = true
	p.Put(two)
	fail = true
	for range 3 { // a failed open costs no permit
		if _, err := p.Get(end); err == nil {
			t.Error("a broken connection was lent")
		}
	}
	fail = false
	if c := get(); c.ID != 3 {
		t.Errorf("lent %d, want a new one", c.ID)
	}
}

func TestMeet_NeitherPassesAlone(t *testing.T) {
	for _, first := range []string{"left", "right"} {
		synctest.Test(t, func(t *testing.T) {
			defer reportUnsolved(t)
			left, right := Meet()
			if first == "right" {
				left, right = right, left
			}
			passed := 0
			var mu sync.Mutex
			meet := func(f func(context.Context) error) {
				if f(t.Context()) == nil {
					mu.Lock()
					passed++
					mu.Unlock()
				}
			}
			go meet(left)
			synctest.Wait()
			if passed != 0 {
				t.Errorf("%s passed alone", first)
			}
			go meet(right)
			synctest.Wait()
			if passed != 2 {
				t.Errorf("%d passed, want both", passed)
			}
		})
	}
}

func TestLimiter_KeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer reportUnsolved(t)
		l := NewLimiter(100, 10)
		defer l.Close()
		time.Sleep(time.Minute) // a pause, after which a burst may pass
		start := time.Now()
		for range 110 {
			if err := l.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 990*time.Millisecond || took > 1010*time.Millisecond {
			t.Errorf("110 calls took %v, want a second", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
	})
}

func TestFirst_TakesOneAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := sema.New(1), sema.New(1)
		held, err := a.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		idle := func() {
			t.Helper()
			if a.Stats().Waiters != 0 || b.Stats().Waiters != 0 || b.Stats().InUse != 0 {
				t.Errorf("left behind: %v, %v", a, b)
			}
		}
		if err := First(t.Context(), a, b, func(which *sema.Semaphore) {
			if which != b || b.Stats().InUse != 1 {
				t.Errorf("ran with %v, want b", which)
			}
		}); err != nil {
			t.Error(err)
		}
		idle()
		other, err := b.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := First(ctx, a, b, func(*sema.Semaphore) { t.Error("ran without a permit") }); err == nil {
			t.Error("no error")
		}
		other.Release()
		idle()
		held.Release()
	})
}

// TestTransfer_DoesNotDeadlock runs transfers in both directions under a thousand schedules.
func TestTransfer_DoesNotDeadlock(t *testing.T) {
	sematest.Explore(t, func(w *sematest.World) {
		a, b := sema.New(1, sema.Name("a")), sema.New(1, sema.Name("b"))
		done := 0
		transfer := func(from, to sema.Gate) func(context.Context) {
			return func(ctx context.Context) {
				if err := Transfer(ctx, from, to, func() {
					if a.Stats().InUse != 1 || b.Stats().InUse != 1 {
						w.Errorf("a transfer holds %v and %v", a, b)
					}
					done++
				}); err != nil {
					w.Errorf("%v", err)
				}
			}
		}
		first, second := w.Gate(a), w.Gate(b)
		w.Go("salary", transfer(first, second))
		w.Go("rent", transfer(second, first))
		w.Finally("both are done, and nothing is held", func() bool {
			return done == 2 && a.Stats().InUse == 0 && b.Stats().InUse == 0
		})
	})
}

func TestBuffer_WaitsAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer reportUnsolved(t)
		b := NewBuffer(2)
		put := func(item int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := b.Put(ctx, item); err != nil {
				t.Fatalf("put %d: %v", item, err)
			}
		}
		take := func(want int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if item, err := b.Take(ctx); err != nil || item != want {
				t.Fatalf("took %d, %v, want %d", item, err, want)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Take(short); err == nil { // gives up, and must not take an item along
			t.Error("took an item of an empty buffer")
		}
		put(1)
		put(2)
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Put(short, 3); err == nil { // gives up, and must not keep a place
			t.Error("a full buffer got an item")
		}
		take(1)
		put(4)
		take(2)
		take(4)
	})
}

// TestBuffer_ServesManyAtOnce has two producers and two consumers.
func TestBuffer_ServesManyAtOnce(t *testing.T) {
	defer reportUnsolved(t)
	const each = 1000
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a test that would hang
	defer cancel()
	b := NewBuffer(8)
	var sum atomic.Int64
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for i := range each {
				if err := b.Put(ctx, i); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			for range each {
				item, err := b.Take(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				sum.Add(int64(item))
			}
		})
	}
	all.Wait()
	if want := int64(each * (each - 1)); sum.Load() != want {
		t.Errorf("the sum of all items is %d, want %d", sum.Load(), want)
	}
}

func TestRunAll_BoundsItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy, most, done atomic.Int64
		jobs := make([]func(context.Context) error, 10)
		for i := range jobs {
			jobs[i] = func(context.Context) error {
				n := busy.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(time.Second)
				busy.Add(-1)
				done.Add(1)
				return nil
			}
		}
		start := time.Now()
		if err := RunAll(t.Context(), 3, jobs...); err != nil {
			t.Fatal(err)
		}
		if done.Load() != 10 || most.Load() != 3 || time.Since(start) != 4*time.Second {
			t.Errorf("%d jobs done in %v, up to %d at the same time; want 10 in 4s, 3", done.Load(), time.Since(start), most.Load())
		}
	})
}

func TestRunAll_StopsAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		var started atomic.Int64
		waits := func(ctx context.Context) error {
			started.Add(1)
			<-ctx.Done()
			time.Sleep(time.Second) // it has to clean up
			started.Add(-1)
			return ctx.Err()
		}
		fails := func(context.Context) error {
			time.Sleep(time.Second)
			return bad
		}
		never := func(context.Context) error { t.Error("a job began after an error"); return nil }
		if err := RunAll(t.Context(), 2, waits, fails, never, never); !errors.Is(err, bad) {
			t.Errorf("%v, want the error of the job", err)
		}
		if started.Load() != 0 {
			t.Error("RunAll returned before its jobs did")
		}
	})
}
