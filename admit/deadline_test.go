package admit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/wfq"
)

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
