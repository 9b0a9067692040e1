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

// inlineSemaphore returns a semaphore with an open session, over a wire.
func inlineSemaphore(t *testing.T, w *wire) (*fleet.Client, *fleet.Semaphore) {
	t.Helper()
	c := fleet.New(w)
	c.UseBubbleClock()
	s := semaphore(t, c, of(10))
	mustAcquire(t, s, 1).Release()
	time.Sleep(3 * w.rtt)
	return c, s
}

// TestSession_InlineExchangeDelaysNoOtherCaller checks that a caller which sends a batch in its
// own goroutine delays no other caller, and is not delayed by others.
func TestSession_InlineExchangeDelaysNoOtherCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, s := inlineSemaphore(t, &wire{Store: memstore.New(), rtt: time.Second})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { // sends the batch itself
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != time.Second {
				t.Errorf("the inline caller got its reply after %v", took)
			}
		})
		synctest.Wait()
		wg.Go(func() { // joins the next batch, and gives up
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != 100*time.Millisecond {
				t.Errorf("the caller that gave up returned after %v", took)
			}
		})
		wg.Go(func() { // joins the next batch
			mustAcquire(t, s, 1)
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("the later caller got its reply after %v", took)
			}
		})
		wg.Wait()
		wantErr(t, c.Close(context.Background(), fleet.CloseAbandon), nil)
	})
}

func TestSession_LostInlineBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.lose.Store(1)
		p := mustAcquire(t, s, 1)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		p.Release()
		wantErr(t, c.Close(context.Background()), nil)
	})
}

func TestClient_CloseEndsAnInlineExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, s := inlineSemaphore(t, w)
		w.cut.Store(true)
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
