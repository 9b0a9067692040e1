package rate_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// TestGate_BoundHoldsUnderRaces races acquires, tries, cancels, refunds, charges, pauses and
// changes. All that is granted costs at most the burst and what returns, and no waiter hangs.
func TestGate_BoundHoldsUnderRaces(t *testing.T) {
	t.Parallel()
	const n, burst, rounds = 200, 50, 400
	start := time.Now()
	g := rate.New(n, time.Millisecond, rate.Burst(burst), sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
	var cost, calls atomic.Int64
	var wg sync.WaitGroup
	for k := range 6 {
		rng := rand.New(rand.NewPCG(uint64(k), 1))
		wg.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				acquire := g.Acquire
				switch rng.IntN(4) {
				case 0:
					acquire = g.TryAcquire
				case 1:
					time.AfterFunc(time.Duration(rng.IntN(200))*time.Microsecond, cancel)
				}
				p, err := acquire(ctx, 1+rng.Int64N(burst))
				if err == context.DeadlineExceeded {
					t.Error("a waiter was not served")
				}
				cancel()
				if err != nil {
					continue
				}
				calls.Add(1)
				paid := p.Weight()
				if rng.IntN(2) == 0 {
					paid = rng.Int64N(2 * burst)
					g.Settle(p, paid)
					g.Settle(p, 0)
				}
				cost.Add(paid)
			}
		})
	}
	stop, changed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			switch i % 3 {
			case 0:
				g.Set(n, time.Millisecond)
			case 1:
				g.PauseUntil(time.Now().Add(200 * time.Microsecond))
			case 2:
				g.Delay(1)
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-changed
	st := g.Stats()
	if st.Waiters != 0 || st.Acquired != calls.Load() || st.InUse != st.Capacity-st.Free+st.Debt {
		t.Errorf("in the end, after %d grants: %+v", calls.Load(), st)
	}
	returned := n * (1 + time.Since(start).Milliseconds())
	if most := burst + returned + st.Debt; cost.Load() > most {
		t.Errorf("granted %d, want at most %d", cost.Load(), most)
	}
}
