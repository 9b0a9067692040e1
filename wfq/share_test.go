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

func TestAging_ServesLowerTiersAtLast(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		opts  []wfq.Option
		least int
		most  int
	}{{"without", nil, 60, 60}, {"with", []wfq.Option{wfq.Aging(5 * time.Second)}, 5, 15}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := wfq.New(1, c.opts...)
				q.Set("high", wfq.Share{Tier: 1})
				end := time.Now().Add(time.Minute)
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						for time.Now().Before(end) {
							p, err := q.Class("high").Acquire(ctx, 1)
							if err != nil {
								t.Error(err)
							}
							time.Sleep(time.Second)
							p.Release()
						}
					})
				}
				synctest.Wait()
				start := time.Now()
				p, err := q.Class("low").Acquire(ctx, 1)
				if err != nil {
					t.Fatal(err)
				}
				p.Release()
				if waited := int(time.Since(start).Seconds()); waited < c.least || waited > c.most+3 {
					t.Errorf("the low tier waited %d s, want %d to %d", waited, c.least, c.most)
				}
				wg.Wait()
			})
		})
	}
}

// TestAging_KeepsSharesWithinATier checks that a class with many waiters does not get more
// by their age.
func TestAging_KeepsSharesWithinATier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hog := &tenant{name: "hog", callers: 500, hold: 10 * time.Millisecond}
		polite := &tenant{name: "polite", callers: 8, hold: 10 * time.Millisecond}
		run(wfq.New(4, wfq.Aging(100*time.Millisecond)), time.Minute, hog, polite)
		if j := jain(hog, polite); j < 0.98 {
			t.Errorf("Jain's index %.4f: hog used %v, polite %v", j, hog.used, polite.used)
		}
	})
}

// TestAging_OfLIFO checks that waiters which a LIFO class never serves do not raise it.
func TestAging_OfLIFO(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		foreground := &tenant{name: "foreground", callers: 8, hold: 10 * time.Millisecond}
		background := &tenant{name: "background", callers: 100, hold: 10 * time.Millisecond, share: wfq.Share{Tier: -1, Order: wfq.LIFO}}
		run(wfq.New(4, wfq.Aging(10*time.Second)), time.Minute, foreground, background)
		if foreground.used < 3*time.Minute {
			t.Errorf("the foreground used %v of 4m0s, the background %v", foreground.used, background.used)
		}
	})
}

func TestOrder_ServesAccordingly(t *testing.T) {
	t.Parallel()
	for order, want := range map[wfq.Order][]string{
		wfq.FIFO:         {"1", "2", "3"},
		wfq.LIFO:         {"3", "2", "1"},
		wfq.CoDel:        {"1", "2", "3"},
		wfq.AdaptiveLIFO: {"1", "2", "3"},
	} {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := wfq.New(1)
				q.Set("a", wfq.Share{Order: order})
				p := mustAcquire(t, q.Class("a"), 1)
				var l log
				for i := range 3 {
					l.start(t, q.Class("a"), fmt.Sprint(i+1), 1, time.Millisecond)
				}
				p.Release()
				l.want(t, want...)
			})
		})
	}
}

// overloads keeps a class overloaded for d: each caller takes 2 ms, and one comes each ms.
// It returns the waits of the callers that were served in the last 500 ms, and the errors.
func overloads(t *testing.T, q *wfq.Queue, d time.Duration) (waits []time.Duration, errs []error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range int(d / time.Millisecond) {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			since := time.Now()
			p, err := q.Class("a").Acquire(ctx, 1)
			mu.Lock()
			if err != nil {
				errs = append(errs, err)
			} else if at := time.Since(start); at < d && at > d-500*time.Millisecond {
				waits = append(waits, time.Since(since))
			}
			mu.Unlock()
			time.Sleep(2 * time.Millisecond)
			p.Release()
		})
	}
	wg.Wait()
	slices.Sort(waits)
	return waits, errs
}

func TestOrder_UnderOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		median := map[wfq.Order]time.Duration{}
		for order := wfq.FIFO; order <= wfq.AdaptiveLIFO; order++ {
			q := wfq.New(1)
			q.Set("a", wfq.Share{Order: order})
			waits, errs := overloads(t, q, 2*time.Second)
			if len(waits) == 0 {
				t.Fatalf("%v: none served", order)
			}
			median[order] = waits[len(waits)/2]
			t.Logf("%v: median wait %v, %d shed", order, median[order], len(errs))
			for _, err := range errs {
				if order != wfq.CoDel || !errors.Is(err, wfq.ErrOverloaded) || !errors.Is(err, sema.ErrFull) || sema.Reason(err) != "overloaded" || sema.Hint(err) == "" {
					t.Fatalf("%v: %v", order, err)
				}
			}
			if order == wfq.CoDel && len(errs) < 500 {
				t.Errorf("CoDel shed %d of 2000 at twice the load", len(errs))
			}
		}
		if median[wfq.FIFO] < 500*time.Millisecond {
			t.Errorf("FIFO: median wait %v: the class is not overloaded", median[wfq.FIFO])
		}
		if m := median[wfq.CoDel]; m > 15*time.Millisecond {
			t.Errorf("CoDel: median wait %v, want at most 15 ms", m)
		}
		if m := median[wfq.AdaptiveLIFO]; m > 15*time.Millisecond {
			t.Errorf("AdaptiveLIFO: median wait %v, want at most 15 ms", m)
		}
	})
}

// TestOrder_CoDelForgetsABurst checks that a class that was overloaded does not shed the
// callers of a later burst.
func TestOrder_CoDelForgetsABurst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		q.Set("a", wfq.Share{Order: wfq.CoDel})
		if _, errs := overloads(t, q, time.Second); len(errs) == 0 {
			t.Fatal("nothing was shed")
		}
		time.Sleep(time.Minute)
		p := mustAcquire(t, q.Class("a"), 1)
		var l log
		l.start(t, q.Class("a"), "later", 1, 0)
		time.Sleep(50 * time.Millisecond)
		p.Release()
		l.want(t, "later")
	})
}

// TestOrder_CoDelOfSlowClasses checks that overload is detected however seldom a class is
// served.
func TestOrder_CoDelOfSlowClasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		q.Set("a", wfq.Share{Order: wfq.CoDel})
		var wg sync.WaitGroup
		var shed atomic.Int64
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 500 * time.Millisecond)
				p, err := q.Class("a").Acquire(ctx, 1)
				if err != nil {
					shed.Add(1)
				}
				time.Sleep(time.Second)
				p.Release()
			})
		}
		wg.Wait()
		if n := shed.Load(); n < 30 {
			t.Errorf("%d of 100 were shed at twice the load", n)
		}
	})
}

// TestOrder_CoDelToleratesBursts checks that a class whose queue is empty in between is not
// overloaded, however long its callers wait.
func TestOrder_CoDelToleratesBursts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		q.Set("a", wfq.Share{Order: wfq.CoDel})
		for range 50 {
			p := mustAcquire(t, q.Class("other"), 1)
			var l log
			l.start(t, q.Class("a"), "served", 1, 0)
			time.Sleep(20 * time.Millisecond)
			p.Release()
			synctest.Wait()
			if l.served[0] != "served" {
				t.Fatal(l.served)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func TestShare_BoundsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.Name("db"))
		q.Set("two", wfq.Share{MaxWaiters: 2})
		q.Set("none", wfq.Share{MaxWaiters: sema.NoWaiters})
		p := mustAcquire(t, q, 1)
		var l log
		l.start(t, q.Class("two"), "1", 1, 0)
		l.start(t, q.Class("two"), "2", 1, 0)
		for _, name := range []string{"two", "none"} {
			_, err := q.Class(name).Acquire(ctx, 1) //semavet:ignore wants an error
			if !errors.Is(err, sema.ErrQueueFull) || !strings.Contains(err.Error(), fmt.Sprintf(`"db": acquire 1 of 1 permits: queue full: class %q`, name)) {
				t.Errorf("class %s: %v, want ErrQueueFull", name, err)
			}
		}
		p.Release()
		l.want(t, "1", "2")
		// A bound on waiters does not reject callers that need not wait.
		mustAcquire(t, q.Class("none"), 1).Release()
	})
}

func TestQueue_DisplacesWaitersWhenFull(t *testing.T) {
	t.Parallel()
	t.Run("of a lower tier", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(3))
			q.Set("high", wfq.Share{Tier: 1})
			p := mustAcquire(t, q, 1)
			var l log
			l.start(t, q.Class("low"), "low 1", 1, 0)
			l.start(t, q.Class("low"), "low 2", 1, 0)
			l.start(t, q.Class("high"), "high 1", 1, 0)
			l.start(t, q.Class("high"), "high 2", 1, 0) // displaces low 2
			l.start(t, q.Class("low"), "low 3", 1, 0)   // is rejected
			l.start(t, q.Class("high"), "high 3", 1, 0) // displaces low 1
			l.start(t, q.Class("high"), "high 4", 1, 0) // is rejected
			p.Release()
			l.want(t, "low 2: queue-full", "low 3: queue-full", "low 1: queue-full", "high 4: queue-full", "high 1", "high 2", "high 3")
		})
	})
	t.Run("of the longest queue", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(8))
			p := mustAcquire(t, q, 1)
			var l log
			for i := range 8 {
				l.start(t, q.Class("hog"), fmt.Sprint("hog ", i), 1, 0)
			}
			for i := range 5 {
				l.start(t, q.Class("tenant"), fmt.Sprint("tenant ", i), 1, 0)
			}
			p.Release()
			time.Sleep(time.Hour)
			l.mu.Lock()
			defer l.mu.Unlock()
			served := map[string]int{}
			for _, name := range l.served {
				served[name[:3]+name[strings.LastIndex(name, " "):]]++
				if strings.HasPrefix(name, "tenant") && strings.HasSuffix(name, "queue-full") {
					served["tenants rejected"]++
				}
			}
			if st := q.Class("hog").Stats(); st.Rejected < 2 || st.Rejected > 6 || served["tenants rejected"] > 3 {
				t.Errorf("served %v", l.served)
			}
		})
	})
}

// TestQueue_ReportsWhyAWaiterWasDisplaced checks the facts of its error.
func TestQueue_ReportsWhyAWaiterWasDisplaced(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{"high": "displaced by a caller of a higher tier", "equal": "displaced by a caller of a class with fewer waiters"} {
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(4))
			q.Set("high", wfq.Share{Tier: 1})
			p := mustAcquire(t, q, 1)
			errs := make(chan error, 5)
			start := func(class string) {
				go func() {
					p, err := q.Class(class).Acquire(ctx, 1)
					p.Release()
					errs <- err
				}()
				synctest.Wait()
			}
			for range 4 {
				start("hog")
			}
			start(class)
			if err := <-errs; !errors.Is(err, sema.ErrQueueFull) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			p.Release()
		})
	}
}

func TestShare_BoundsWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.MaxWait(time.Minute))
		q.Set("short", wfq.Share{MaxWait: time.Second})
		q.Set("long", wfq.Share{MaxWait: time.Hour})
		defer mustAcquire(t, q, 1).Release()
		for name, want := range map[string]time.Duration{"short": time.Second, "long": time.Minute, "other": time.Minute} {
			start := time.Now()
			_, err := q.Class(name).Acquire(ctx, 1) //semavet:ignore wants an error
			if !errors.Is(err, sema.ErrTimeout) || time.Since(start) != want {
				t.Errorf("class %s: %v after %v, want ErrTimeout after %v", name, err, time.Since(start), want)
			}
		}
		if st := q.Stats(); st.TimedOut != 3 || st.WaitTime != 2*time.Minute+time.Second {
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
