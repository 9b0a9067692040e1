package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/rate"
)

// TestAcquireAll_FailureRefundsTheRates exactly: those of the fleet, and those of the process
// that are acquired after them.
func TestAcquireAll_FailureRefundsTheRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		all := semaphore(t, c, of(10, fleet.Rate(time.Hour)))
		plain, err := c.Semaphore("plain", 3)
		wantErr(t, err, nil)
		own := rate.New(10, time.Hour)
		busy := sema.New(1)
		held := mustAcquire(t, busy, 1)
		wants := []sema.Want{{Gate: all, N: 6}, {Gate: plain, N: 2}, {Gate: own, N: 4}, {Gate: busy, N: 1}}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := sema.AcquireAll(ctx, wants...)
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
			sent()
			wantUsed(t, store, 0)
			if d := own.Delay(10); d != 0 || plain.Stats().Held != 0 {
				t.Errorf("the process's rate is free after %v, %d held", d, plain.Stats().Held)
			}
		}
		full := sema.New(1, sema.MaxWaiters(0))
		other := mustAcquire(t, full, 1)
		_, err = sema.AcquireAll(t.Context(), sema.Want{Gate: all, N: 10}, sema.Want{Gate: full, N: 1})
		wantErr(t, err, sema.ErrQueueFull)
		sent()
		wantUsed(t, store, 0)
		other.Release()
		held.Release()
		p, err := sema.AcquireAll(t.Context(), wants...)
		wantErr(t, err, nil)
		p.Release()
		sent()
		wantUsed(t, store, 6)
	})
}
