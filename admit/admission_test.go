package admit_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

func TestAdmission_FirstDoneCounts(t *testing.T) {
	t.Parallel()
	q := wfq.New(2)
	c := admit.New(admit.Config{Queue: q, Logger: quiet})
	a := mustAdmit(t, c, admit.Request{})
	stale := a
	a.Done(admit.OK)
	b := mustAdmit(t, c, admit.Request{}) // may reuse the state of a
	stale.Done(admit.OK)
	stale.Done(admit.Failed)
	stale.Settle(3)
	if q.Stats().InUse != 1 {
		t.Errorf("%d in use after stale calls, want 1", q.Stats().InUse)
	}
	b.Done(admit.OK)
	admit.Admission{}.Done(admit.OK)
	if (admit.Admission{}).Degraded() {
		t.Error("the zero Admission is degraded")
	}
}

func TestAdmission_SettlesTheBudget(t *testing.T) {
	t.Parallel()
	budget := rate.New(100, 1<<40)
	c := admit.New(admit.Config{Budget: budget, Logger: quiet})
	a := mustAdmit(t, c, admit.Request{Cost: 50})
	a.Settle(10)
	a.Settle(0) // the first one counts
	a.Done(admit.OK)
	if free := budget.Stats().Free; free != 90 {
		t.Errorf("%d free, want 90", free)
	}
}

// TestAdmission_StaleSettleIsInert settles an admission that has ended, while another uses
// its state.
func TestAdmission_StaleSettleIsInert(t *testing.T) {
	t.Parallel()
	budget := rate.New(100, 1<<40)
	c := admit.New(admit.Config{Budget: budget, Logger: quiet})
	for range 100 { // the pool may drop the state
		stale := mustAdmit(t, c, admit.Request{Cost: 1})
		stale.Settle(0)
		stale.Done(admit.OK)
		a := mustAdmit(t, c, admit.Request{Cost: 10})
		stale.Settle(0)
		if free := budget.Stats().Free; free != 90 {
			t.Fatalf("%d free after a stale Settle, want 90", free)
		}
		a.Settle(0)
		a.Done(admit.OK)
	}
}

// TestAdmission_NothingIsLostUnderStress races admissions, cancels, resizes and sheds.
func TestAdmission_NothingIsLostUnderStress(t *testing.T) {
	t.Parallel()
	q := wfq.New(4)
	budget := rate.New(1_000_000_000, time.Second)
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 5, OpenFor: time.Millisecond, MaxOpenFor: 2 * time.Millisecond})
	c := admit.New(admit.Config{Queue: q, Budget: budget, Breaker: b, MaxWait: time.Millisecond, Limit: &admit.AIMD{Min: 1, Max: 8}, Logger: quiet})
	var inFlight, most atomic.Int64
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 2000 {
				a, err := c.Admit(t.Context(), admit.Request{Class: []string{"a", "b"}[random.IntN(2)], Weight: 1 + random.Int64N(3), Cost: random.Int64N(5)})
				if err != nil {
					if admit.RejectionOf(err) == nil {
						t.Error(err)
					}
					continue
				}
				n := inFlight.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				inFlight.Add(-1)
				o := admit.Result(random.IntN(4))
				go a.Done(o)
				a.Done(o)
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			q.Resize(int64(1 + i%8))
			c.Shed(i%7 == 0)
			time.Sleep(10 * time.Microsecond)
		}
		c.Shed(false)
	})
	wg.Wait()
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); st.InUse != 0 || st.Waiters != 0 {
		t.Errorf("%d in use and %d waiting after all are done", st.InUse, st.Waiters)
	}
	if most.Load() > 8 {
		t.Errorf("%d requests in flight", most.Load())
	}
}

func TestRejection_AllocatesNothing(t *testing.T) {
	q := wfq.New(1)
	all := rate.New(1, time.Hour)
	full := admit.New(admit.Config{Name: "api", Queue: q, Logger: quiet})
	overRate := admit.New(admit.Config{Rate: all, Logger: quiet})
	breaker := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Hour})
	breaker.Trip()
	tripped := admit.New(admit.Config{Breaker: breaker, Logger: quiet})
	mustAdmit(t, full, admit.Request{})
	mustAdmit(t, overRate, admit.Request{})
	shedding := admit.New(admit.Config{Logger: quiet})
	shedding.Shed(true)
	for name, c := range map[string]*admit.Controller{"full": full, "rate": overRate, "shedding": shedding, "breaker": tripped} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := c.TryAdmit(t.Context(), admit.Request{}); err == nil {
				t.Fatal("admitted")
			}
		}); n > 0 {
			t.Errorf("%s: a rejection allocates %v times", name, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { mustAdmit(t, admitted, admit.Request{}).Done(admit.OK) }); n > 0 && !raceEnabled {
		t.Errorf("an admission allocates %v times", n)
	}
}

var admitted = admit.New(admit.Config{Queue: wfq.New(10), MaxWait: time.Second, Rate: rate.New(1<<40, time.Second), Breaker: admit.NewBreaker(admit.BreakerConfig{}), Limit: &admit.AIMD{}})

func TestResultOf_Errors(t *testing.T) {
	t.Parallel()
	if admit.ResultOf(errors.New("x")) != admit.Failed || admit.ResultOf(nil) != admit.OK || admit.ResultOf(t.Context().Err()) != admit.OK {
		t.Error("wrong results")
	}
}

// wrapped is a limiter that is no *rate.Gate, such as one of package fleet.
type wrapped struct{ rate.Limiter }

func TestAdmission_TakesTheBudgetOfAnyLimiter(t *testing.T) {
	t.Parallel()
	gate := rate.New(100, time.Hour)
	c := admit.New(admit.Config{Budget: wrapped{gate}, Logger: quiet})
	a := mustAdmit(t, c, admit.Request{Cost: 30})
	if free := gate.Stats().Free; free != 70 {
		t.Errorf("%d free, want 70", free)
	}
	a.Settle(20)
	a.Done(admit.OK)
	if free := gate.Stats().Free; free != 80 {
		t.Errorf("%d free after Settle, want 80", free)
	}
}
