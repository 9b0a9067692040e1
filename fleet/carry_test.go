package fleet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// carried is a semaphore with a session, over a wire.
func carried(t *testing.T, w *wire) (*fleet.Client, *fleet.Semaphore) {
	t.Helper()
	c := fleet.New(w)
	c.UseBubbleClock()
	s := semaphore(t, c, of(10))
	mustAcquire(t, s, 1).Release()
	time.Sleep(3 * w.rtt)
	return c, s
}

// Who carries a batch in its own goroutine holds up nobody, and is held up by
// nobody.
func TestWhoCarriesABatchIsInNobodysWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := carried(t, &wire{Store: memstore.New(), rtt: time.Second})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { // carries
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != time.Second {
				t.Errorf("who carried was answered after %v", took)
			}
		})
		synctest.Wait()
		wg.Go(func() { // joins the next batch, and leaves
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != 100*time.Millisecond {
				t.Errorf("who left was held up for %v", took)
			}
		})
		wg.Go(func() { // joins the next batch
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("who came later was answered after %v", took)
			}
		})
		wg.Wait()
		wantErr(t, c.Close(context.Background(), fleet.CloseAbandon), nil)
	})
}

func TestABatchThatIsLostWithWhoCarriesItIsSaidAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := carried(t, w)
		w.lose.Store(1)
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, c.Close(context.Background()), nil)
	})
}

func TestCloseEndsWhoCarries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := carried(t, w)
		w.dead.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Acquire(context.Background(), 1)
			wantErr(t, err, sema.ErrClosed)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx, fleet.CloseAbandon)
		wg.Wait()
	})
}
