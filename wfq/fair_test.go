package wfq_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// TestQueue_HogThatPausesIsNotForgiven checks that a class cannot get more than its share
// by leaving the queue: each caller of the hog takes all permits for long, and comes again
// only after it was served, so that its class begins to wait anew each time.
func TestQueue_HogThatPausesIsNotForgiven(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hog := &tenant{name: "hog", callers: 1, weight: 4, hold: 100 * time.Millisecond, rest: 10 * time.Millisecond}
		other := &tenant{name: "other", callers: 40, hold: 10 * time.Millisecond}
		run(wfq.New(4), 5*time.Minute, hog, other)
		t.Logf("hog %v, other %v", hog.used, other.used)
		if j := jain(hog, other); j < 0.98 {
			t.Errorf("Jain's index %.4f: hog used %v, other %v", j, hog.used, other.used)
		}
	})
}

// TestQueue_IdleClassesEarnNothing checks that a class that was idle for an hour gets its
// share from then on, and not the hour.
func TestQueue_IdleClassesEarnNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2)
		q.Class("late")
		early := &tenant{name: "early", callers: 10, hold: 10 * time.Millisecond}
		run(q, 10*time.Minute, early)
		early.used = 0
		late := &tenant{name: "late", callers: 10, hold: 10 * time.Millisecond}
		run(q, 10*time.Second, early, late)
		if j := jain(early, late); j < 0.99 {
			t.Errorf("Jain's index %.4f: early used %v, late %v", j, early.used, late.used)
		}
	})
}

// TestQueue_LatecomersAreNotFavoured checks that a class that competed alone, and used more
// than the capacity after a shrink, shares equally with one that comes later.
func TestQueue_LatecomersAreNotFavoured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(100)
		many := mustAcquire(t, q.Class("early"), 100)
		q.Resize(2)
		early := &tenant{name: "early", callers: 10, hold: 10 * time.Millisecond}
		late := &tenant{name: "late", callers: 10, hold: 10 * time.Millisecond}
		time.AfterFunc(time.Minute, many.Release)
		go func() {
			time.Sleep(time.Minute - time.Millisecond)
			run(q, time.Minute, late)
		}()
		run(q, time.Minute+10*time.Second, early) // waits for the first minute
		time.Sleep(time.Minute)
		if early.used < 8*time.Second {
			t.Errorf("early used %v in the 10 s in which both competed for 2 permits, want about 10 s", early.used)
		}
	})
}

// TestQueue_NothingIsChargedWithoutWaiters checks that a class that used all that others
// left is not punished for it.
func TestQueue_NothingIsChargedWithoutWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2)
		a := &tenant{name: "a", callers: 2, hold: 100 * time.Millisecond} // never waits
		run(q, time.Hour, a)
		a.used, a.callers = 0, 10
		b := &tenant{name: "b", callers: 10, hold: 100 * time.Millisecond}
		run(q, 10*time.Second, a, b)
		if j := jain(a, b); j < 0.99 {
			t.Errorf("Jain's index %.4f: a used %v, b %v", j, a.used, b.used)
		}
	})
}

// TestQueue_WideRequestsAreNotStarved checks that a class whose permits have the weight of
// the whole capacity gets its share among classes of light ones. What stays free until such
// a request fits counts as used by its class.
func TestQueue_WideRequestsAreNotStarved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wide := &tenant{name: "wide", callers: 3, weight: 8, hold: 10 * time.Millisecond}
		light := &tenant{name: "light", callers: 50, hold: 10 * time.Millisecond}
		run(wfq.New(8), time.Minute, wide, light)
		t.Logf("wide %v, light %v", wide.used, light.used)
		if wide.used < light.used/3 || wide.used > light.used {
			t.Errorf("wide used %v, light %v", wide.used, light.used)
		}
	})
}

// TestQueue_WideClassesShare checks that two classes of wide requests and one of light ones
// all get their shares.
func TestQueue_WideClassesShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tenants := []*tenant{
			{name: "a", callers: 5, weight: 5, hold: 10 * time.Millisecond},
			{name: "b", callers: 5, weight: 5, hold: 10 * time.Millisecond},
			{name: "c", callers: 50, hold: 10 * time.Millisecond},
		}
		run(wfq.New(8), time.Minute, tenants...)
		if j := jain(tenants...); j < 0.97 {
			t.Errorf("Jain's index %.4f: %v, %v, %v", j, tenants[0].used, tenants[1].used, tenants[2].used)
		}
	})
}

// TestQueue_WideRequestsDoNotStarveOthers checks that a class cannot keep permits free
// for nothing: requests of the whole capacity that are released at once.
func TestQueue_WideRequestsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attacker := &tenant{name: "attacker", callers: 2, weight: 20}
		other := &tenant{name: "other", callers: 60, hold: 50 * time.Millisecond}
		run(wfq.New(20), time.Minute, attacker, other)
		if other.used < 8*time.Minute {
			t.Errorf("the other class used %v of 20 permit-minutes, want about half", other.used)
		}
	})
}

// TestQueue_ClassesThatCompeteNowAndThen checks that a class with a single caller, one at
// its Max, and one that is set all the time get what they can.
func TestQueue_ClassesThatCompeteNowAndThen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capacity int64
		a, b     tenant
		least    float64 // share of a
	}{
		"one caller": {2, tenant{callers: 1, hold: 10 * time.Millisecond}, tenant{callers: 200, hold: 10 * time.Millisecond}, 0.3},
		"at its Max": {4, tenant{callers: 50, hold: time.Millisecond, share: wfq.Share{Max: 2}}, tenant{callers: 50, hold: 100 * time.Millisecond}, 0.45},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.a.name, c.b.name = "a", "b"
				run(wfq.New(c.capacity), time.Minute, &c.a, &c.b)
				if share := float64(c.a.used) / float64(c.a.used+c.b.used); share < c.least {
					t.Errorf("the class used %.2f of the capacity, want at least %.2f", share, c.least)
				}
			})
		})
	}
}

// TestQueue_SettingAnEqualShareChangesNothing checks that an operator that applies a
// configuration again and again costs a class nothing of what it is owed.
func TestQueue_SettingAnEqualShareChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(2)
		a := &tenant{name: "a", callers: 20, hold: 10 * time.Millisecond, share: wfq.Share{Weight: 2}}
		b := &tenant{name: "b", callers: 20, hold: 100 * time.Millisecond, share: wfq.Share{Weight: 2}}
		end := time.Now().Add(time.Minute)
		go func() {
			for time.Now().Before(end) {
				time.Sleep(time.Millisecond)
				q.Set("a", a.share)
			}
		}()
		run(q, time.Minute, a, b)
		if j := jain(a, b); j < 0.99 {
			t.Errorf("Jain's index %.4f: a used %v, b %v", j, a.used, b.used)
		}
	})
}

// TestQueue_KeepsPrecisionOverTime checks that large weights are fair after a year without
// load.
func TestQueue_KeepsPrecisionOverTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		share := wfq.Share{Weight: 1_000_000}
		q.Set("a", share)
		q.Set("b", share)
		time.Sleep(365 * 24 * time.Hour)
		a := &tenant{name: "a", callers: 20, hold: 10 * time.Millisecond, share: share}
		b := &tenant{name: "b", callers: 20, hold: 10 * time.Millisecond, share: share}
		run(q, 10*time.Second, a, b)
		if j := jain(a, b); j < 0.99 {
			t.Errorf("Jain's index %.4f: a used %v, b %v", j, a.used, b.used)
		}
	})
}

// TestQueue_WeightsChangeLive checks that a new weight applies from then on.
func TestQueue_WeightsChangeLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(4)
		a := &tenant{name: "a", callers: 20, hold: 10 * time.Millisecond}
		b := &tenant{name: "b", callers: 20, hold: 10 * time.Millisecond}
		run(q, time.Minute, a, b)
		a.used, b.used, a.share.Weight = 0, 0, 5
		run(q, time.Minute, a, b)
		if j := jain(a, b); j < 0.99 {
			t.Errorf("Jain's index %.4f: a used %v, b %v", j, a.used, b.used)
		}
	})
}

// TestQueue_InstantHoldsAlternate checks that classes are served in proportion to their
// weights even if no time passes while permits are held.
func TestQueue_InstantHoldsAlternate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		q.Set("b", wfq.Share{Weight: 3})
		p := mustAcquire(t, q, 1)
		var l log
		for i := range 40 {
			l.start(t, q.Class("a"), fmt.Sprint("a", i), 1, 0)
		}
		for i := range 40 {
			l.start(t, q.Class("b"), fmt.Sprint("b", i), 1, 0)
		}
		p.Release()
		time.Sleep(time.Hour)
		l.mu.Lock()
		defer l.mu.Unlock()
		of := map[byte]int{}
		for _, name := range l.served[:40] {
			of[name[0]]++
		}
		if of['b'] < 28 || of['b'] > 32 {
			t.Errorf("%d of the first 40 were of the class with three quarters of the weight, want 28 to 32", of['b'])
		}
	})
}

// TestQueue_ManyPermitsAtOnceAreShared checks that permits that become free in one instant
// are shared, although none of them has been used yet: what they will use is estimated. Of
// the class whose holds are ten times as long, a tenth as many are granted.
func TestQueue_ManyPermitsAtOnceAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(20)
		tenants := []*tenant{
			{name: "long", callers: 100, hold: time.Second},
			{name: "short", callers: 100, hold: 100 * time.Millisecond},
		}
		done := make(chan struct{})
		go func() {
			run(q, time.Minute, tenants...)
			close(done)
		}()
		time.Sleep(30 * time.Second)
		for range 10 {
			q.Resize(100)
			synctest.Wait()
			if n := q.Class("long").Stats().InUse; n < 12 || n > 28 {
				t.Errorf("the class of long holds uses %d after 80 became free at once, want about 10 + 8", n)
			}
			q.Resize(20)
			time.Sleep(3 * time.Second)
		}
		<-done
	})
}

// TestQueue_FairnessIsNotTransitive shows that two gates that are fair by themselves are
// not fair together. Both classes get the same share of the workers. But each worker of
// the class "report" then waits for the database, which serves in order of arrival; its
// queries are long, and the others wait behind them. The class "page" gets much less of
// what it needs the workers for. A fair queue in front of the database as well shares that,
// too.
func TestQueue_FairnessIsNotTransitive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		simulate := func(database func(class string) sema.Gate) (queried map[string]time.Duration) {
			queried = map[string]time.Duration{}
			workers := wfq.New(20)
			end := time.Now().Add(time.Minute)
			var wg sync.WaitGroup
			var mu sync.Mutex
			for class, query := range map[string]time.Duration{"page": 5 * time.Millisecond, "report": 100 * time.Millisecond} {
				for range 40 {
					wg.Go(func() {
						for time.Now().Before(end) {
							worker, err := workers.Class(class).Acquire(ctx, 1)
							if err != nil {
								t.Error(err)
							}
							p, err := database(class).Acquire(ctx, 1)
							if err != nil {
								t.Error(err)
							}
							time.Sleep(query)
							mu.Lock()
							queried[class] += query
							mu.Unlock()
							p.Release()
							worker.Release()
						}
					})
				}
			}
			wg.Wait()
			return queried
		}
		plain := sema.New(2)
		unfair := simulate(func(string) sema.Gate { return plain })
		queue := wfq.New(2)
		fair := simulate(func(class string) sema.Gate { return queue.Class(class) })
		t.Logf("time in the database: %v behind a semaphore, %v behind a fair queue", unfair, fair)
		if ratio := float64(unfair["report"]) / float64(unfair["page"]); ratio < 3 {
			t.Errorf("reports used %.1f times as much of the database as pages, want at least 3: the example shows nothing", ratio)
		}
		if ratio := float64(fair["report"]) / float64(fair["page"]); ratio < 0.8 || ratio > 1.25 {
			t.Errorf("reports used %.2f times as much of the database as pages behind a fair queue, want about the same", ratio)
		}
	})
}
