package wfq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// mustAcquire acquires permits that are free.
func mustAcquire(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	p, err := g.TryAcquire(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A log records in which order callers are served.
type log struct {
	mu     sync.Mutex
	served []string
}

// start starts a caller of a class, which holds its permit for the time, and waits until
// it is queued or served.
func (l *log) start(t *testing.T, g sema.Gate, name string, n int64, hold time.Duration) {
	go func() {
		p, err := g.Acquire(ctx, n)
		if err != nil {
			name += ": " + sema.Reason(err)
		}
		l.mu.Lock()
		l.served = append(l.served, name)
		l.mu.Unlock()
		time.Sleep(hold)
		p.Release()
	}()
	synctest.Wait()
}

// want waits until all have been served, and compares the order.
func (l *log) want(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(time.Hour)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.served, want) {
		t.Errorf("served %v, want %v", l.served, want)
	}
}

// TestShare_FreePaidInternal is the configuration of a service with a capacity of 1000: free
// users may use 200, paid ones are guaranteed 500 and internal ones 300. What these leave
// unused is a bonus, which free users never get.
func TestShare_FreePaidInternal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1000)
		q.Set("free", wfq.Share{Min: 200, Max: 200})
		q.Set("paid", wfq.Share{Min: 500})
		q.Set("internal", wfq.Share{Min: 300})
		inUse := map[string]*atomic.Int64{"free": {}, "paid": {}, "internal": {}}
		most := map[string]int64{}
		var mu sync.Mutex
		load, end := context.WithCancel(ctx)
		var wg sync.WaitGroup
		demand := func(class string, callers int) {
			for i := range callers {
				wg.Go(func() {
					for {
						p, err := q.Class(class).Acquire(load, 1)
						if err != nil {
							return
						}
						n := inUse[class].Add(1)
						mu.Lock()
						most[class] = max(most[class], n)
						mu.Unlock()
						time.Sleep(time.Duration(1+i%7) * 100 * time.Millisecond)
						inUse[class].Add(-1)
						p.Release()
					}
				})
			}
		}
		wantNow := func(free, paid, internal int64) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			got := [3]int64{inUse["free"].Load(), inUse["paid"].Load(), inUse["internal"].Load()}
			if got != [3]int64{free, paid, internal} {
				t.Errorf("free, paid, internal use %v, want %v", got, [3]int64{free, paid, internal})
			}
		}
		demand("free", 600)
		wantNow(200, 0, 0) // however much is unused
		demand("paid", 1500)
		wantNow(200, 800, 0) // its own and what internal leaves
		demand("internal", 900)
		wantNow(200, 500, 300) // what was lent returns
		end()
		wg.Wait()
		if most["free"] > 200 {
			t.Errorf("free users had %d, want at most 200", most["free"])
		}
		if st := q.Stats(); st.InUse != 0 || st.Waiters != 0 {
			t.Error(st)
		}
	})
}

func TestShare_MinComesBeforeTiers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2)
		q.Set("high", wfq.Share{Tier: 5})
		q.Set("low", wfq.Share{Min: 1})
		a, b := mustAcquire(t, q.Class("high"), 1), mustAcquire(t, q.Class("high"), 1) // borrowed
		var l log
		l.start(t, q.Class("high"), "high", 1, time.Minute)
		l.start(t, q.Class("low"), "low below its min", 1, 2*time.Minute)
		l.start(t, q.Class("low"), "low above its min", 1, 0)
		a.Release()
		synctest.Wait()
		b.Release()
		l.want(t, "low below its min", "high", "low above its min")
	})
}

func TestShare_MaxOfOneClassDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		q.Set("bounded", wfq.Share{Max: 1, Tier: 9})
		p := mustAcquire(t, q.Class("bounded"), 1)
		var l log
		l.start(t, q.Class("bounded"), "bounded", 1, 0)
		if _, err := q.Class("bounded").TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) { //semavet:ignore wants an error
			t.Error(err)
		}
		mustAcquire(t, q.Class("other"), 2).Release()
		l.start(t, q.Class("other"), "other", 3, 0)
		p.Release()
		l.want(t, "other", "bounded")
		if _, err := q.Class("bounded").Acquire(ctx, 2); !errors.Is(err, sema.ErrTooLarge) || !strings.Contains(err.Error(), `class "bounded" may use 1`) { //semavet:ignore wants an error
			t.Error(err)
		}
	})
}

// TestShare_MaxAfterACancelledGrant checks that a permit that was granted to a caller whose
// context ended at that moment goes to the next one of a class at its limit.
func TestShare_MaxAfterACancelledGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // the waiter sees the grant or the end of its context first
			q := wfq.New(2)
			q.Set("a", wfq.Share{Max: 1})
			p := mustAcquire(t, q.Class("a"), 1)
			first, cancel := context.WithCancel(ctx)
			var l log
			l.start(t, gateIn{first, q.Class("a")}, "first", 1, 0)
			l.start(t, q.Class("a"), "second", 1, 0)
			cancel()
			p.Release()
			synctest.Wait()
			if !slices.Contains(l.served, "first: cancelled") || !slices.Contains(l.served, "second") {
				t.Errorf("served %v", l.served)
			}
		}
	})
}

func TestShare_HigherTiersFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		for _, tier := range []int{-1, 0, 1} {
			q.Set(fmt.Sprint("tier ", tier), wfq.Share{Tier: tier})
		}
		p := mustAcquire(t, q.Class("tier 0"), 1)
		var l log
		for _, name := range []string{"tier -1", "tier 0", "tier 1", "tier -1", "tier 1"} {
			l.start(t, q.Class(name), name, 1, time.Second)
		}
		p.Release()
		l.want(t, "tier 1", "tier 1", "tier 0", "tier -1", "tier -1")
	})
}

// TestShare_TryOfHigherTierOvertakes checks that a call that does not wait is served as one
// that waits would be.
func TestShare_TryOfHigherTierOvertakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(3)
		q.Set("high", wfq.Share{Tier: 1})
		p := mustAcquire(t, q.Class("low"), 2)
		var l log
		l.start(t, q.Class("low"), "low", 2, 0)
		if _, err := q.Class("low").TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) { //semavet:ignore wants an error
			t.Errorf("a try overtook a waiter of its class: %v", err)
		}
		if _, err := q.Class("other").TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) { //semavet:ignore wants an error
			t.Errorf("a try overtook a waiter of its tier: %v", err)
		}
		mustAcquire(t, q.Class("high"), 1).Release()
		p.Release()
		l.want(t, "low")
		if st := q.Stats(); st.Waited != 1 || st.Rejected != 2 {
			t.Errorf("%+v", st.Counts)
		}
	})
}

func TestShare_InvalidValuesPanic(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	for _, s := range []wfq.Share{{Weight: -1}, {Min: -1}, {Max: -1}, {Min: 2, Max: 1}, {MaxWait: -1}, {MaxWaiters: -2}, {Order: 4}} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "want") {
					t.Errorf("%+v: %q", s, text)
				}
			}()
			q.Set("a", s)
		}()
	}
	if got := q.Class("a").Share(); got != (wfq.Share{Weight: 1}) {
		t.Errorf("%+v after shares that were rejected", got)
	}
}

func TestQueue_DefaultShareAppliesToAllThatWereNotSet(t *testing.T) {
	t.Parallel()
	q := wfq.New(10)
	q.Set("set", wfq.Share{Weight: 2})
	before := q.Class("before")
	q.Default(wfq.Share{Max: 3})
	for name, want := range map[string]int64{"before": 3, "after": 3, "set": 10} {
		if st := q.Class(name).Stats(); st.Capacity != want {
			t.Errorf("class %s: capacity %d, want %d", name, st.Capacity, want)
		}
	}
	if _, err := before.TryAcquire(ctx, 4); !errors.Is(err, sema.ErrTooLarge) { //semavet:ignore wants an error
		t.Error(err)
	}
}

// TestShare_ChangesWhileCallersWait checks that a live change serves and rejects waiters.
func TestShare_ChangesWhileCallersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		q.Set("a", wfq.Share{Max: 2})
		p := mustAcquire(t, q.Class("a"), 2)
		var l log
		l.start(t, q.Class("a"), "a1", 1, time.Minute)
		l.start(t, q.Class("a"), "a2", 2, time.Minute)
		q.Set("a", wfq.Share{Max: 3})
		synctest.Wait()
		if st := q.Class("a").Stats(); st.InUse != 3 || st.Waiters != 1 {
			t.Errorf("%+v after Max has grown", st)
		}
		q.Set("a", wfq.Share{Max: 1})
		synctest.Wait()
		if st := q.Class("a").Stats(); st.InUse != 3 || st.Waiters != 0 || st.Debt != 2 {
			t.Errorf("%+v after Max has shrunk", st)
		}
		p.Release()
		l.want(t, "a1", "a2: too-large")
	})
}
