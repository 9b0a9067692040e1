package admit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
)

// quiet is a logger that discards everything.
var quiet = slog.New(slog.DiscardHandler)

// mustAdmit admits a request, or ends the test.
func mustAdmit(t *testing.T, c *admit.Controller, r admit.Request) admit.Admission {
	t.Helper()
	a, err := c.Admit(t.Context(), r)
	if err != nil {
		t.Fatalf("Admit(%+v): %v", r, err)
	}
	return a
}

// wantReason checks that a request is rejected for a reason.
func wantReason(t *testing.T, err error, want admit.Reason) *admit.Rejection {
	t.Helper()
	r := admit.RejectionOf(err)
	if r == nil {
		t.Fatalf("the error is %v, want a rejection with the reason %v", err, want)
	}
	if r.Reason != want {
		t.Fatalf("the reason is %v, want %v", r.Reason, want)
	}
	if got := sema.Reason(err); got != want.String() {
		t.Errorf("sema.Reason is %q, want %q", got, want)
	}
	if sema.Hint(err) == "" {
		t.Errorf("%v has no hint", err)
	}
	return r
}

// TestController_ChecksInOrder makes every check fail, and repairs them one after the other.
func TestController_ChecksInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		all, own, budget := rate.New(1, time.Hour), rate.New(1, time.Hour), rate.New(10, time.Hour)
		b := admit.NewBreaker(admit.BreakerConfig{})
		c := admit.New(admit.Config{
			Name: "api", Queue: q, MaxWait: time.Second, Breaker: b, Rate: all, Budget: budget, Logger: quiet,
			RateOf: func(string) rate.Limiter { return own },
		})
		try := func() error {
			_, err := c.Admit(t.Context(), admit.Request{Class: "paid", Cost: 4})
			return err
		}
		var wg sync.WaitGroup
		for range 3 { // the queue learns that permits are held for a second
			wg.Go(func() {
				p, err := q.Class("other").Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				p.Release()
			})
		}
		wg.Wait()
		held := mustAdmit(t, c, admit.Request{Class: "paid", Cost: 10}) // all rates are used up now
		b.Trip()
		c.Shed(true)
		go c.Shutdown(t.Context())
		synctest.Wait()

		wantReason(t, try(), admit.ReasonDraining)
		c.Resume()
		synctest.Wait()
		if r := wantReason(t, try(), admit.ReasonShedding); r.Controller != "api" || r.Class != "paid" || !errors.Is(r, sema.ErrFull) {
			t.Errorf("%+v", r)
		}
		c.Shed(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := c.Admit(ctx, admit.Request{Class: "paid"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that cannot wait: %v", err)
		} else {
			wantReason(t, err, admit.ReasonDeadline)
		}
		held.Done(admit.OK)
		if r := wantReason(t, try(), admit.ReasonBreaker); r.RetryAfter == 0 || !errors.Is(r, sema.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		b.Reset()
		if r := wantReason(t, try(), admit.ReasonRate); r.RetryAfter != time.Hour {
			t.Errorf("retry after %v, want an hour", r.RetryAfter)
		}
		all.Set(1000, time.Second)
		time.Sleep(time.Millisecond)
		wantReason(t, try(), admit.ReasonClassRate)
		own.Set(1000, time.Second)
		time.Sleep(time.Millisecond)
		wantReason(t, try(), admit.ReasonBudget)
		budget.Set(10, time.Millisecond)
		time.Sleep(time.Millisecond)
		mustAdmit(t, c, admit.Request{Class: "paid", Cost: 4}).Done(admit.OK)
	})
}

// TestController_RefundsExactly rejects a request at the last check and compares the rates
// with what they were.
func TestController_RefundsExactly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.MaxWaiters(0))
		all, own, budget := rate.New(5, time.Hour), rate.New(5, time.Hour), rate.New(50, time.Hour)
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Queue: q, Rate: all, Budget: budget, Breaker: b, RateOf: func(string) rate.Limiter { return own }, Logger: quiet})
		b.Trip()
		time.Sleep(time.Second) // half-open: one probe may pass
		p, err := q.Class("other").Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			_, err := c.Admit(t.Context(), admit.Request{Cost: 10})
			wantReason(t, err, admit.ReasonQueueFull)
		}
		p.Release()
		for name, g := range map[string]*rate.Gate{"rate": all, "class rate": own, "budget": budget} {
			if st := g.Stats(); st.Free != st.Capacity {
				t.Errorf("%s: %d of %d free after rejections", name, st.Free, st.Capacity)
			}
		}
		mustAdmit(t, c, admit.Request{Cost: 10}).Done(admit.OK) // the probe was not used up
		if got := b.State(); got != admit.Closed {
			t.Errorf("the breaker is %v after its probe", got)
		}
	})
}

// TestController_RefundsEarlierSteps rejects at the budget: rate and probe are refunded.
func TestController_RefundsEarlierSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, budget := rate.New(5, time.Hour), rate.New(10, time.Hour, sema.MaxWaiters(0))
		b := admit.NewBreaker(admit.BreakerConfig{OpenFor: time.Second, Probes: 1})
		c := admit.New(admit.Config{Rate: all, Budget: budget, Breaker: b, Logger: quiet})
		mustAdmit(t, c, admit.Request{Cost: 8}).Done(admit.OK)
		b.Trip()
		time.Sleep(time.Second)
		for range 20 {
			_, err := c.Admit(t.Context(), admit.Request{Cost: 8})
			wantReason(t, err, admit.ReasonBudget)
		}
		if st := all.Stats(); st.Free != 4 {
			t.Errorf("%d free of the rate, want 4: rejected requests take nothing", st.Free)
		}
		mustAdmit(t, c, admit.Request{Cost: 1}).Done(admit.OK)
		if b.State() != admit.Closed {
			t.Error("rejected requests have used up the probes")
		}
	})
}

// TestController_RefundsTheRateForAClassOverItsOwn rejects at the rate of the class, at first
// without and then with a cost.
func TestController_RefundsTheRateForAClassOverItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, own := rate.New(5, time.Hour), rate.New(1, time.Hour, sema.MaxWaiters(0))
		c := admit.New(admit.Config{Rate: all, RateOf: func(string) rate.Limiter { return own }, Logger: quiet})
		mustAdmit(t, c, admit.Request{}).Done(admit.OK)
		for i := range int64(20) {
			_, err := c.Admit(t.Context(), admit.Request{Cost: i % 2})
			wantReason(t, err, admit.ReasonClassRate)
		}
		if st := all.Stats(); st.Free != 4 {
			t.Errorf("%d free of the rate, want 4: rejected requests take nothing", st.Free)
		}
	})
}

func TestController_RejectsAtOnceWhatCannotMeetItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		c := admit.New(admit.Config{Queue: q, MaxWait: 3 * time.Second, Logger: quiet})
		var wg sync.WaitGroup
		for range 12 { // each holds for a second, so the queue learns the hold time
			wg.Go(func() {
				p, err := q.Class("").Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				p.Release()
			})
		}
		time.Sleep(2500 * time.Millisecond)
		start := time.Now()
		_, err := c.Admit(t.Context(), admit.Request{})
		r := wantReason(t, err, admit.ReasonDeadline)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the rejection took %v", waited)
		}
		if r.RetryAfter < 5*time.Second || !errors.Is(err, sema.ErrTimeout) {
			t.Errorf("%+v", r)
		}
		wg.Wait()
	})
}

func TestController_RejectsAtOnceWhatIsLikelyToTimeOut(t *testing.T) {
	t.Parallel()
	// Where the expected wait is what a request may wait, half of all requests wait for longer,
	// and time out in vain.
	synctest.Test(t, func(t *testing.T) {
		const capacity, budget = 8, 100 * time.Millisecond
		c := admit.New(admit.Config{Queue: wfq.New(capacity), MaxWait: budget, Logger: quiet})
		var admitted, atOnce, timedOut [2]atomic.Int64 // light and heavy
		rng := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		for i := range 20_000 { // three times what the capacity can serve
			heavy, hold := 0, time.Duration(rng.ExpFloat64()*float64(10*time.Millisecond))
			if i%20 == 0 {
				heavy = 1
			}
			wg.Go(func() {
				start := time.Now()
				a, err := c.Admit(t.Context(), admit.Request{Weight: int64(1 + 3*heavy)})
				switch {
				case err == nil:
					admitted[heavy].Add(1)
					time.Sleep(hold)
					a.Done(admit.OK)
				case time.Since(start) == 0:
					atOnce[heavy].Add(1)
				default:
					timedOut[heavy].Add(1)
				}
			})
			time.Sleep(time.Duration(rng.ExpFloat64() * float64(420*time.Microsecond)))
		}
		wg.Wait()
		all := timedOut[0].Load() + timedOut[1].Load()
		if rejected := all + atOnce[0].Load() + atOnce[1].Load(); rejected < 10_000 || 20*all > rejected {
			t.Errorf("%d of %d rejected requests have waited first", all, rejected)
		}
		light, heavy := float64(admitted[0].Load())/19_000, float64(admitted[1].Load())/1_000
		if heavy < light/2 {
			t.Errorf("%.2f of the light requests were admitted, and %.2f of the heavy ones", light, heavy)
		}
	})
}

func TestController_LetsTheFirstWaiterTryWhateverItsChance(t *testing.T) {
	t.Parallel()
	// Without a waiter, the permit would be unused when it returns.
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1)
		c := admit.New(admit.Config{Queue: q, MaxWait: time.Second, Logger: quiet})
		var wg sync.WaitGroup
		for range 12 { // the queue learns how long permits are held
			wg.Go(func() {
				p, err := q.Class("").Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(900 * time.Millisecond)
				p.Release()
			})
		}
		wg.Wait()
		held := mustAdmit(t, c, admit.Request{})
		time.AfterFunc(900*time.Millisecond, func() { held.Done(admit.OK) })
		a, err := c.Admit(t.Context(), admit.Request{})
		if err != nil {
			t.Fatalf("the first waiter: %v", err)
		}
		a.Done(admit.OK)
	})
}

func TestController_EndsAWaitWithTheWaitBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := admit.New(admit.Config{Queue: wfq.New(1), MaxWait: time.Second, Logger: quiet})
		held := mustAdmit(t, c, admit.Request{})
		start := time.Now()
		_, err := c.Admit(t.Context(), admit.Request{})
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("waited %v", waited)
		}
		wantReason(t, err, admit.ReasonTimeout)
		held.Done(admit.OK)
		cause := errors.New("the client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if _, err := c.Admit(ctx, admit.Request{}); err != cause {
			t.Errorf("a cancelled context: %v, want its cause", err)
		}
	})
}

func TestController_LowersWeightsAboveTheLimit(t *testing.T) {
	t.Parallel()
	q := wfq.New(10)
	budget := rate.New(100, time.Hour)
	c := admit.New(admit.Config{Queue: q, Budget: budget, Logger: quiet})
	q.Resize(4)
	a := mustAdmit(t, c, admit.Request{Weight: 8, Cost: 1000})
	if st := c.Stats(); st.InUse != 4 || st.Clamped != 2 {
		t.Errorf("%d in use, %d lowered; want 4 and 2", st.InUse, st.Clamped)
	}
	a.Done(admit.OK)
	if st := budget.Stats(); st.Free != 0 {
		t.Errorf("%d left of the budget", st.Free)
	}
}

func TestController_Degrades(t *testing.T) {
	t.Parallel()
	var loads []admit.Load
	c := admit.New(admit.Config{Queue: wfq.New(1), Logger: quiet, Degrade: func(l admit.Load) bool {
		loads = append(loads, l)
		return l.Class != "strict"
	}})
	held := mustAdmit(t, c, admit.Request{})
	defer held.Done(admit.OK)
	if held.Degraded() || len(loads) > 0 {
		t.Error("a request that need not wait was degraded")
	}
	a := mustAdmit(t, c, admit.Request{Class: "web"}) // instead of a wait
	if !a.Degraded() || c.Stats().Degraded != 1 || c.Stats().InUse != 1 {
		t.Errorf("%v, %v", a.Degraded(), c.Stats())
	}
	if l := loads[0]; l.Class != "web" || l.InFlight != 1 || l.Limit != 1 || l.Wait == 0 {
		t.Errorf("%+v", l)
	}
	a.Done(admit.OK)
	if _, err := c.TryAdmit(t.Context(), admit.Request{Class: "strict"}); err == nil {
		t.Error("a class that is not degraded was admitted")
	}
	c.Shed(true)
	if a := mustAdmit(t, c, admit.Request{}); !a.Degraded() {
		t.Error("not degraded while shedding")
	}
}

func TestController_ShedsAll(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Logger: quiet})
	c.Shed(true)
	_, err := c.Admit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonShedding)
	_, err = c.TryAdmit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonShedding)
	c.Shed(false)
	mustAdmit(t, c, admit.Request{}).Done(admit.OK)
}

func TestController_ShedsAClass(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Logger: quiet})
	c.ShedClass("batch", true)
	_, err := c.Admit(t.Context(), admit.Request{Class: "batch"})
	wantReason(t, err, admit.ReasonShedding)
	mustAdmit(t, c, admit.Request{Class: "web"}).Done(admit.OK)
	c.ShedClass("batch", false)
	mustAdmit(t, c, admit.Request{Class: "batch"}).Done(admit.OK)
}

// TestController_KeepsFewClasses admits requests of many classes, as a client that chooses
// its class could.
func TestController_KeepsFewClasses(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Logger: quiet})
	c.ShedClass("kept", true)
	mustAdmit(t, c, admit.Request{}).Done(admit.OK)
	for i := range 20_000 {
		mustAdmit(t, c, admit.Request{Class: fmt.Sprint("client-", i)}).Done(admit.OK)
	}
	kept := maps.Collect(c.Classes())
	if len(kept) > 5000 {
		t.Errorf("%d classes are kept", len(kept))
	}
	if _, ok := kept[""]; !ok {
		t.Error("the class without a name is not kept")
	}
	_, err := c.Admit(t.Context(), admit.Request{Class: "kept"})
	wantReason(t, err, admit.ReasonShedding)
	c.ShedClass("", true)
	_, err = c.Admit(t.Context(), admit.Request{})
	wantReason(t, err, admit.ReasonShedding)
}

func TestController_ShutdownWaitsForRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := admit.New(admit.Config{Queue: wfq.New(1), Logger: quiet})
		a := mustAdmit(t, c, admit.Request{})
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Admit(t.Context(), admit.Request{})
			waiting <- err
		}()
		synctest.Wait()
		ended := make(chan error, 1)
		go func() { ended <- c.Shutdown(t.Context()) }()
		synctest.Wait()
		wantReason(t, <-waiting, admit.ReasonDraining)
		if len(ended) > 0 {
			t.Error("Shutdown did not wait")
		}
		a.Done(admit.OK)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !strings.Contains(c.String(), "draining") {
			t.Error(c.String())
		}
	})
}

func TestController_RejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{})
	for _, r := range []admit.Request{{Weight: -1}, {Cost: -1}} {
		if _, err := c.Admit(t.Context(), r); !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	var noContext context.Context
	if _, err := c.Admit(noContext, admit.Request{}); !errors.Is(err, sema.ErrInvalid) {
		t.Errorf("nil context: %v", err)
	}
}

func TestController_LogsAtALimitedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := admit.New(admit.Config{Name: "api", Queue: wfq.New(0), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 25 {
			for range 100 {
				c.TryAdmit(t.Context(), admit.Request{}) //semavet:ignore it is rejected
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "requests rejected"); n != 3 {
			t.Errorf("%d lines in 25 seconds, want 3:\n%s", n, &log)
		}
		if !strings.Contains(log.String(), "rejected=1000") {
			t.Errorf("no line has the number of rejections:\n%s", &log)
		}
	})
}

func TestController_ReportsRejections(t *testing.T) {
	t.Parallel()
	var events []sema.Event
	c := admit.New(admit.Config{Name: "api", Queue: wfq.New(0), Logger: quiet, Observers: []sema.Observer{sema.ObserverFunc(func(e sema.Event) { events = append(events, e) })}})
	_, err := c.TryAdmit(t.Context(), admit.Request{Class: "web", Weight: 1})
	if len(events) != 1 || events[0].Kind != sema.EventRejected || events[0].Class != "web" || events[0].Name != "api" || events[0].Err != err {
		t.Errorf("%+v", events)
	}
}

func TestController_DoReportsResults(t *testing.T) {
	t.Parallel()
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 2, FailureRatio: 1})
	c := admit.New(admit.Config{Breaker: b, Logger: quiet})
	broken := errors.New("broken")
	if err := c.Do(t.Context(), admit.Request{}, func(context.Context) error { return broken }); err != broken {
		t.Errorf("Do returned %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = c.Do(t.Context(), admit.Request{}, func(context.Context) error { panic("broken") })
	}()
	if b.State() != admit.Open {
		t.Error("an error and a panic are two failures")
	}
	if st := c.Stats(); st.InUse != 0 {
		t.Errorf("%d permits leaked", st.InUse)
	}
}

func TestController_StringWithoutAQueueHasNoLimit(t *testing.T) {
	t.Parallel()
	if got, want := admit.New(admit.Config{Name: "api"}).String(), `controller "api": 0 in flight, 0 waiting`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := admit.New(admit.Config{Name: "api", Queue: wfq.New(2)}).String(), `controller "api": 0 of 2 in flight, 0 waiting`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestController_InvalidRequestsNameTheNumbers(t *testing.T) {
	t.Parallel()
	c := admit.New(admit.Config{Name: "api"})
	for want, r := range map[string]admit.Request{
		`sema: "api": admit: invalid argument: weight -1 and cost 0`: {Weight: -1},
		`sema: "api": admit: invalid argument: weight 1 and cost -2`: {Weight: 1, Cost: -2},
	} {
		_, err := c.Admit(t.Context(), r)
		if !errors.Is(err, sema.ErrInvalid) || err.Error() != want || sema.Hint(err) == "" {
			t.Errorf("got  %v, hint %q\nwant %s", err, sema.Hint(err), want)
		}
	}
}

func TestNew_RejectsResizesWithoutLimit(t *testing.T) {
	t.Parallel()
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "admit: New: Config.Resizes") {
			t.Errorf("%q", text)
		}
	}()
	admit.New(admit.Config{Resizes: sema.New(1)})
}
