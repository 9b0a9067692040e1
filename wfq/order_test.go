package wfq_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

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
