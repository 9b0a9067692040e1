package wfq_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/wfq"
)

func TestQueue_Resize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		p := mustAcquire(t, q.Class("a"), 4)
		q.Resize(2)
		if st := q.Stats(); st.Capacity != 2 || st.InUse != 4 || st.Debt != 2 || st.Free != 0 {
			t.Errorf("%+v after a shrink", st)
		}
		var l log
		l.start(t, q.Class("a"), "two", 2, 0)
		l.start(t, q.Class("b"), "one", 1, 0)
		q.Resize(1)
		q.Resize(0) // pauses
		p.Release()
		synctest.Wait()
		if st := q.Stats(); st.Waiters != 1 {
			t.Errorf("%+v while paused", st)
		}
		q.Resize(5)
		l.want(t, "two: too-large", "one")
		if st := q.Stats(); st.Free != 5 || st.InUse != 0 {
			t.Errorf("%+v in the end", st)
		}
		q.Resize(math.MaxInt64)
		if st := q.Stats(); st.Capacity != sema.MaxCapacity {
			t.Errorf("%+v: want unlimited", st)
		}
	})
}

func TestQueue_DrainResumeClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2, sema.Name("db"))
		p := mustAcquire(t, q.Class("a"), 2)
		var l log
		l.start(t, q.Class("a"), "a", 1, 0)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := q.Drain(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 of 2 permits are still held") || !strings.Contains(sema.Hint(err), "SEMA_DEBUG") {
			t.Errorf("Drain: %v", err)
		}
		for _, n := range []int64{0, 1} {
			if _, err := q.Class("b").Acquire(ctx, n); !errors.Is(err, sema.ErrDraining) { //semavet:ignore wants an error
				t.Errorf("acquire %d while draining: %v", n, err)
			}
		}
		time.AfterFunc(time.Second, q.Resume)
		if err := q.Drain(ctx); err == nil || !strings.Contains(err.Error(), "resumed") {
			t.Errorf("Drain that was resumed: %v", err)
		}
		time.AfterFunc(time.Second, p.Release)
		if err := q.WaitIdle(ctx); err != nil {
			t.Errorf("WaitIdle: %v", err)
		}
		if err := q.Drain(ctx); err != nil {
			t.Errorf("Drain: %v", err)
		}
		q.Resume()
		mustAcquire(t, q.Class("b"), 2).Release()
		p = mustAcquire(t, q, 1)
		l.start(t, q.Class("b"), "b", 2, 0)
		q.Close()
		q.Close()
		q.Resume()
		l.want(t, "a: draining", "b: closed")
		if _, err := q.TryAcquire(ctx, 1); !errors.Is(err, sema.ErrClosed) { //semavet:ignore wants an error
			t.Errorf("after Close: %v", err)
		}
		p.Release()
		var none context.Context
		for _, err := range []error{q.Drain(none), q.WaitIdle(none)} {
			if !errors.Is(err, sema.ErrInvalid) {
				t.Errorf("nil context: %v", err)
			}
		}
	})
}

func TestQueue_Stats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		q.Set("a", wfq.Share{Max: 3, Weight: 2})
		p := mustAcquire(t, q.Class("a"), 3)
		q.Class("a").TryAcquire(ctx, 2) //semavet:ignore full
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		q.Class("a").Acquire(short, 1) //semavet:ignore ends without a permit
		var l log
		l.start(t, q.Class("a"), "a", 2, 0)
		time.Sleep(3 * time.Second)
		var st wfq.Stats
		for _, st = range q.Classes() {
		}
		want := wfq.Stats{
			Stats: sema.Stats{
				Capacity: 3, InUse: 3, Waiters: 1,
				Counts: sema.Counts{Acquired: 1, Waited: 2, Cancelled: 1, Rejected: 1, WaitTime: 5 * time.Second},
			},
			Share: wfq.Share{Max: 3, Weight: 2}, QueuedFor: 3 * time.Second, QueuedSize: 2,
		}
		if st != want {
			t.Errorf("%+v\nwant %+v", st, want)
		}
		sum := q.Stats()
		if sum.Capacity != 4 || sum.InUse != 3 || sum.Free != 1 || sum.Waiters != 1 || sum.Counts != want.Counts {
			t.Errorf("%+v", sum)
		}
		p.Release()
		l.want(t, "a")
		for _, st = range q.Classes() {
		}
		if st.MeanHold != 5*time.Second/3*1 && st.MeanHold <= 0 {
			t.Errorf("mean hold %v", st.MeanHold)
		}
		if text := q.String(); text != "fair queue: 0 of 4 in use, 0 waiting" {
			t.Error(text)
		}
	})
}

func TestClass_ExpectedWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2)
		q.Set("high", wfq.Share{Tier: 1})
		a := q.Class("a")
		if d := a.ExpectedWait(1); d != 0 {
			t.Errorf("%v while all is free", d)
		}
		if d := a.ExpectedWait(-3); d != 0 {
			t.Errorf("%v for less than nothing", d)
		}
		if d := a.ExpectedWait(3); d != math.MaxInt64 {
			t.Errorf("%v for more than the capacity", d)
		}
		run(q, time.Minute, &tenant{name: "a", callers: 20, hold: 100 * time.Millisecond}) // the mean hold is known
		held := mustAcquire(t, q, 2)
		for range 20 {
			go func() {
				p, err := a.Acquire(ctx, 1)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
				p.Release()
			}()
		}
		synctest.Wait()
		for name, c := range map[string]struct {
			gate *wfq.Class
			want time.Duration
		}{
			"behind all of its class": {a, 1050 * time.Millisecond},
			"another class":           {q.Class("b"), 100 * time.Millisecond},
			"a higher tier":           {q.Class("high"), 50 * time.Millisecond},
		} {
			if d := c.gate.ExpectedWait(1); d < c.want/2 || d > c.want*3/2 {
				t.Errorf("%s: %v, want about %v", name, d, c.want)
			}
		}
		_, err := a.TryAcquire(ctx, 1) //semavet:ignore wants an error
		var facts *sema.Error
		if !errors.As(err, &facts) || facts.After < 500*time.Millisecond {
			t.Errorf("%v: want when to try again", err)
		}
		held.Release()
		time.Sleep(time.Hour)
		q.Resize(0)
		if d := a.ExpectedWait(1); d != math.MaxInt64 {
			t.Errorf("%v while paused", d)
		}
	})
}

// TestClass_ExpectedWaitOfCenturies checks that the estimate is never negative.
func TestClass_ExpectedWaitOfCenturies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const years = 365 * 24 * time.Hour
		q := wfq.New(1)
		held := mustAcquire(t, q, 1)
		time.AfterFunc(50*years, held.Release)
		p, err := q.Acquire(ctx, 1) // the mean hold is known
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(ctx)
		for range 20 {
			go q.Acquire(ended, 1) //semavet:ignore ends with its context
		}
		synctest.Wait()
		if d := q.Class("a").ExpectedWait(1); d < 40*years {
			t.Errorf("a class of its own waits %v, want decades", d)
		}
		if d := q.Class("").ExpectedWait(1); d != math.MaxInt64 {
			t.Errorf("behind 20 callers: %v, want centuries", d)
		}
		cancel()
		p.Release()
	})
}

// TestQueue_FullIsNotReportedAsQueued checks that observers see a wait only of callers that
// wait, also of one that displaces another.
func TestQueue_FullIsNotReportedAsQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		queued := map[string]int{}
		q := wfq.New(1, sema.MaxWaiters(1), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == sema.EventQueued {
				queued[e.Class]++
			}
		})))
		q.Set("high", wfq.Share{Tier: 1})
		q.Set("none", wfq.Share{Tier: 2, MaxWaiters: sema.NoWaiters})
		p := mustAcquire(t, q, 1)
		var l log
		l.start(t, q.Class("low"), "first", 1, 0)
		l.start(t, q.Class("low"), "second", 1, 0)
		l.start(t, q.Class("none"), "none", 1, 0)
		l.start(t, q.Class("high"), "high", 1, 0)
		p.Release()
		l.want(t, "second: queue-full", "none: queue-full", "first: queue-full", "high")
		if st := q.Stats(); queued["low"] != 1 || queued["none"] != 0 || queued["high"] != 1 || st.Waited != 2 {
			t.Errorf("reported as queued %v, counted %d, want the first of low and that of high", queued, st.Waited)
		}
	})
}

// TestClass_CauseIsReturnedAsItIs checks that the cause of a context is not taken for an
// error of the queue.
func TestClass_CauseIsReturnedAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, cause := range []error{sema.ErrClosed, sema.ErrTimeout, uncomparable{"a"}} {
			q := wfq.New(1, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
			p := mustAcquire(t, q, 1)
			ended, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := q.Acquire(ended, 1) //semavet:ignore wants an error
			if reflect.TypeOf(err) != reflect.TypeOf(cause) || err.Error() != cause.Error() {
				t.Errorf("%v, want %v as it is", err, cause)
			}
			if st := q.Stats(); st.Cancelled != 1 || st.Rejected+st.TimedOut != 0 {
				t.Errorf("%v: %+v", cause, st.Counts)
			}
			p.Release()
		}
	})
}

type uncomparable []string

func (u uncomparable) Error() string { return u[0] }

// TestQueue_UsedInABubble checks that the clock of a queue that was created outside of a
// bubble runs in it.
func TestQueue_UsedInABubble(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	synctest.Test(t, func(t *testing.T) {
		p := mustAcquire(t, q, 1)
		time.AfterFunc(time.Hour, p.Release)
		next, err := q.Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		next.Release()
		if st := q.Stats(); st.WaitTime != time.Hour {
			t.Errorf("waited %v, want 1h0m0s", st.WaitTime)
		}
	})
}

func TestQueue_ReportsEventsWithClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		kinds := map[sema.EventKind]int{}
		q := wfq.New(1, sema.Name("db"), sema.Diagnose(sema.DiagnoseFull), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case sema.EventQueued, sema.EventAcquired, sema.EventReleased, sema.EventRejected:
				if e.Class != "paid" || e.Name != "db" {
					t.Errorf("%v: name %q, class %q", e.Kind, e.Name, e.Class)
				}
			}
			if e.Kind == sema.EventQueued && e.Waiters != 1 {
				t.Errorf("queued as one of %d", e.Waiters)
			}
			kinds[e.Kind]++
		})))
		p := mustAcquire(t, q.Class("paid"), 1)
		holders := 0
		for _, h := range sema.Holders() {
			if h.Name == "db" {
				holders++
			}
		}
		if holders == 0 {
			t.Error("a permit is not among the holders")
		}
		var l log
		l.start(t, q.Class("paid"), "waiter", 1, 0)
		q.Class("paid").TryAcquire(ctx, 1) //semavet:ignore full
		p.Release()
		l.want(t, "waiter")
		q.Resize(2)
		q.Drain(ctx)
		q.Close()
		mu.Lock()
		defer mu.Unlock()
		for kind, want := range map[sema.EventKind]int{sema.EventQueued: 1, sema.EventAcquired: 2, sema.EventReleased: 2, sema.EventRejected: 1, sema.EventResized: 1, sema.EventDrained: 1, sema.EventClosed: 1} {
			if kinds[kind] != want {
				t.Errorf("%d events %q, want %d", kinds[kind], kind, want)
			}
		}
	})
}

func TestNew_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(){
		"capacity":              func() { wfq.New(-1) },
		"Resize":                func() { wfq.New(1).Resize(-1) },
		"Aging":                 func() { wfq.Aging(0) },
		"Over without gate":     func() { wfq.Over(nil, 1) },
		"Over":                  func() { wfq.Over(sema.New(1), -1) },
		"option of another one": func() { wfq.New(1, host.Dir("x")) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "wfq: ") || strings.HasPrefix(name, "Over") && !strings.HasPrefix(text, "wfq: Over") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			create()
		}()
	}
	var none context.Context
	if _, err := wfq.New(1).Acquire(none, 1); !errors.Is(err, sema.ErrInvalid) || sema.Hint(err) == "" { //semavet:ignore wants an error
		t.Errorf("nil context: %v", err)
	}
}

// TestError_StatesWhatHelps checks the hints of errors, and that an error does not ask to try
// again in 292 years.
func TestError_StatesWhatHelps(t *testing.T) {
	t.Parallel()
	q := wfq.New(4, sema.Name("db"))
	q.Set("capped", wfq.Share{Max: 2})
	if _, err := q.Class("capped").Acquire(t.Context(), 3); !errors.Is(err, sema.ErrTooLarge) || !strings.Contains(sema.Hint(err), "Max") {
		t.Errorf("%v, hint %q", err, sema.Hint(err))
	}
	if _, err := q.Class("capped").Acquire(t.Context(), 5); !errors.Is(err, sema.ErrTooLarge) || strings.Contains(sema.Hint(err), "Max") {
		t.Errorf("%v, hint %q: a higher Max does not help", err, sema.Hint(err))
	}
	q.Resize(0)
	var fault *sema.Error
	if _, err := q.Class("a").TryAcquire(t.Context(), 1); !errors.As(err, &fault) || fault.After != 0 || !strings.Contains(sema.Hint(err), "pauses") {
		t.Errorf("%v, hint %q", err, sema.Hint(err))
	}
}
